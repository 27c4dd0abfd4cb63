"""`lower`: which implementation is chosen, what is recorded, and how often it is traced."""

import pytest
import torch
from torch import Tensor
from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.conversions import lower
from vllm_ir.conversions.lower import LowerPass
from vllm_ir.dialects.torch.call import CallOp

_KERNELS = torch.library.Library("lower_test", "DEF")
_KERNELS.define("scale_(Tensor(a!) x, float factor) -> ()")
_KERNELS.impl("scale_", lambda x, factor: (x.mul_(factor), None)[1], "CompositeExplicitAutograd")
torch.library.register_fake("lower_test::scale_", lambda x, factor: None, lib=_KERNELS)

traces: list[str] = []


@ir.register_op(allow_inplace=True)
def lower_test_scale(x: Tensor, factor: float) -> Tensor:
    """`x` times `factor`."""
    traces.append("native")
    return x * factor


@lower_test_scale.register_impl("inplace", supports_args=lambda x, factor: x.dtype == torch.float32, inplace=True)
def _inplace(x: Tensor, factor: float) -> Tensor:
    traces.append("inplace")
    torch.ops.lower_test.scale_(x, factor)
    return x


@lower_test_scale.register_impl("doubles")
def _doubles(x: Tensor, factor: float) -> Tensor:
    traces.append("doubles")
    return (x * factor).double()


@lower_test_scale.register_impl("halves")
def _halves(x: Tensor, factor: float) -> Tensor:
    return (x * factor).half()


@lower_test_scale.register_impl("widens")
def _widens(x: Tensor, factor: float) -> Tensor:
    return torch.cat([x, x]) * factor


@lower_test_scale.register_impl("column_major")
def _column_major(x: Tensor, factor: float) -> Tensor:
    return (x.mT.contiguous() * factor).mT


@ir.register_op(allow_inplace=True)
def lower_test_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Half of `x`, and the rest."""
    return x / 2, x - x / 2


@lower_test_halves.register_impl("counts")
def _counts(x: Tensor) -> tuple[Tensor, Tensor]:
    return x / 2, (x * 2).to(torch.int64)


@lower_test_halves.register_impl("short")
def _short(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x / 2,)  # pyright: ignore[reportReturnType]  # the fault under test


def lowered(fn, *inputs) -> ModuleOp:
    return ir.run_passes(ir.import_callable(fn, *inputs), "functionalize,lower")


def selected(module: ModuleOp) -> str:
    return str(module.attributes.get("vllm_ir.selected"))


def test_native_is_inlined():
    module = lowered(lambda x: lower_test_scale(x, 2.0), torch.ones(3))
    assert "vllm_ir.lower_test_scale" not in [op.name for op in module.walk()]
    assert '"native"' in selected(module)
    x = torch.randn(3)
    assert torch.equal(ir.export_fx(module)(x), x * 2.0)


def test_inplace_implementation_takes_the_updates_form():
    with lower_test_scale.set_priority(["inplace"]):
        module = lowered(lambda x: lower_test_scale(x, 2.0), torch.ones(3))
    calls = [op for op in module.walk() if isinstance(op, CallOp) and op.target == "lower_test.scale_.default"]
    assert [call.update_indices for call in calls] == [(0,)]
    x = torch.randn(3)
    before = x.clone()
    got = ir.export_fx(module)(x)
    assert torch.equal(got, before * 2.0)
    assert torch.equal(x, before), "the caller's tensor was overwritten"


def test_rejection_is_recorded_with_its_reason():
    with lower_test_scale.set_priority(["inplace"]):
        module = lowered(lambda x: lower_test_scale(x, 2.0), torch.ones(3, dtype=torch.float64))
    assert '"native"' in selected(module)
    assert "inplace" in str(module.attributes["vllm_ir.rejected"])


def test_equal_calls_are_traced_once():
    def layers(x):
        for _ in range(8):
            x = lower_test_scale(x, 3.0)
        return x

    module = ir.run_passes(ir.import_callable(layers, torch.ones(3)), "functionalize")
    traces.clear()
    LowerPass().apply(Context(), module)
    assert traces == ["native"]


def test_different_arguments_are_traced_apart():
    module = ir.run_passes(
        ir.import_callable(lambda x: lower_test_scale(lower_test_scale(x, 3.0), 4.0), torch.ones(3)), "functionalize"
    )
    traces.clear()
    LowerPass().apply(Context(), module)
    assert traces == ["native", "native"]


def reasons(module: ModuleOp) -> dict[str, str]:
    """Why providers were passed over, for the only node where some were."""
    found = module.attributes["vllm_ir.rejected"]
    for _ in ("op", "node"):
        assert isinstance(found, DictionaryAttr)
        (found,) = found.data.values()
    assert isinstance(found, DictionaryAttr)
    return {provider: reason.data for provider, reason in found.data.items()}


def test_results_of_another_type_or_shape_are_rejections():
    with lower_test_scale.set_priority(["doubles", "widens", "inplace", "native"]):
        module = lowered(lambda x: lower_test_scale(x, 2.0), torch.ones(3))
    assert '"inplace"' in selected(module)
    assert reasons(module) == {
        "doubles": "returns tensor<3xf64>, the op gives tensor<3xf32>",
        "widens": "returns tensor<6xf32>, the op gives tensor<3xf32>",
    }
    x = torch.randn(3)
    assert torch.equal(ir.export_fx(module)(x), x * 2.0)


def test_rejections_of_both_kinds_are_recorded_in_order():
    with lower_test_scale.set_priority(["doubles", "inplace"]):
        module = lowered(lambda x: lower_test_scale(x, 2.0), torch.ones(3, dtype=torch.float16))
    assert '"native"' in selected(module)
    assert list(reasons(module).items()) == [
        ("doubles", "returns tensor<3xf64>, the op gives tensor<3xf16>"),
        ("inplace", "supports_args refused the arguments"),
    ]


def test_every_result_counts():
    with lower_test_halves.set_priority(["counts", "short"]):
        module = lowered(lambda x: lower_test_halves(x), torch.ones(3))
    assert '"native"' in selected(module)
    assert reasons(module) == {
        "counts": "returns tensor<3xi64> as result 1, the op gives tensor<3xf32>",
        "short": "returns 1 results, the op has 2",
    }


def test_a_provider_is_rejected_only_where_its_results_differ():
    def program(x, y):
        return lower_test_scale(x, 2.0), lower_test_scale(y, 2.0)

    with lower_test_scale.set_priority(["doubles"]):
        module = lowered(program, torch.ones(3, dtype=torch.float64), torch.ones(3))
    assert selected(module).count('"doubles"') == selected(module).count('"native"') == 1
    assert list(reasons(module)) == ["doubles"]


def test_another_layout_is_no_rejection():
    with lower_test_scale.set_priority(["column_major"]):
        module = lowered(lambda x: lower_test_scale(x, 2.0), torch.ones(3, 4))
    assert '"column_major"' in selected(module)
    assert "vllm_ir.rejected" not in module.attributes
    x = torch.randn(3, 4)
    assert ir.export_fx(module)(x).stride() == lower_test_scale(x, 2.0).stride()


def test_symbolic_sizes_are_no_rejection():
    modules: list[ModuleOp] = []

    def backend(gm, inputs):
        modules.append(ir.run_passes(ir.import_fx(gm, inputs), "functionalize,lower"))
        return gm.forward

    with lower_test_scale.set_priority(["doubles", "column_major"]):
        torch.compile(lambda x: lower_test_scale(x, 2.0), backend=backend, dynamic=True, fullgraph=True)(
            torch.ones(3, 4)
        )
    (module,) = modules
    assert '"column_major"' in selected(module)
    assert reasons(module) == {"doubles": "returns tensor<?x?xf64>, the op gives tensor<?x?xf32>"}


STATED_AS_HALF = """
vllm_ir.func functional @main(%x: tensor<3xf32>) -> tensor<3xf16> {
  %y = "vllm_ir.lower_test_scale"(%x) <{factor = 2.0 : f64}> : (tensor<3xf32>) -> tensor<3xf16>
  vllm_ir.return %y : tensor<3xf16>
}
"""


def test_no_provider_left_stops_and_names_them_all():
    message = (
        r"lower_test_scale: no provider is left: 'doubles': returns tensor<3xf64>, the op gives tensor<3xf16>; "
        r"'native': returns tensor<3xf32>, the op gives tensor<3xf16>$"
    )
    with lower_test_scale.set_priority(["doubles"]), pytest.raises(PassFailedException, match=message):
        ir.run_passes(ir.parse(STATED_AS_HALF), "lower")


def test_native_is_passed_over_like_the_others():
    with lower_test_scale.set_priority(["native", "halves"]):
        module = ir.run_passes(ir.parse(STATED_AS_HALF), "lower")
    assert '"halves"' in selected(module)
    assert reasons(module) == {"native": "returns tensor<3xf32>, the op gives tensor<3xf16>"}


def test_reports_name_rejected_results():
    ir.clear_compile_reports()
    with lower_test_scale.set_priority(["doubles"]):
        torch.compile(lambda x: lower_test_scale(x, 2.0), backend="vllm_ir_eager", fullgraph=True)(torch.ones(3))
    (report,) = ir.compile_reports()
    ((node, provider),) = report.selected_impls["lower_test_scale"].items()
    assert provider == "native"
    assert report.rejected_impls["lower_test_scale"] == {
        node: [("doubles", "returns tensor<3xf64>, the op gives tensor<3xf32>")]
    }


def test_a_deep_chain_is_traced_once(monkeypatch):
    def layers(x, weight):
        for _ in range(128):
            x = ir.ops.rms_norm(x, weight, 1e-5)
        return x

    traced: list[object] = []
    original = lower.trace_callable
    monkeypatch.setattr(lower, "trace_callable", lambda *args: traced.append(args) or original(*args))
    module = ir.import_callable(layers, torch.ones(4, 64), torch.ones(64))
    LowerPass().apply(Context(), module)
    assert len(traced) == 1
    assert selected(module).count('"native"') == 128


def test_rejected_providers_are_traced_once_too():
    def layers(x):
        for _ in range(8):
            x = lower_test_scale(x, 3.0)
        return x

    module = ir.run_passes(ir.import_callable(layers, torch.ones(3)), "functionalize")
    traces.clear()
    with lower_test_scale.set_priority(["doubles"]):
        LowerPass().apply(Context(), module)
    assert traces == ["doubles", "native"]


def test_buffers_stop():
    module = ir.import_callable(lambda x: lower_test_scale(x.add_(1), 2.0), torch.ones(3))
    with pytest.raises(PassFailedException, match="run functionalize first"):
        ir.run_passes(module, "lower")


def test_donated_argument_is_marked_and_given_to_the_kernel():
    def program(x):
        return lower_test_scale.maybe_inplace(x * 1.5, 2.0)

    with lower_test_scale.set_priority(["inplace"]):
        module = lowered(program, torch.ones(3))
    x = torch.randn(3)
    assert torch.equal(ir.export_fx(module)(x), x * 1.5 * 2.0)


def test_symbolic_sizes_keep_their_names():
    modules = []

    def backend(gm, inputs):
        module = ir.run_passes(ir.import_fx(gm, inputs), "functionalize,lower")
        modules.append(str(module))
        return ir.export_fx(module, like=gm)

    compiled = torch.compile(lambda x, w: ir.ops.rms_norm(x, w, 1e-5), backend=backend, dynamic=True, fullgraph=True)
    for rows in (3, 5):
        x, w = torch.randn(rows, 8), torch.randn(8)
        assert torch.equal(compiled(x, w), ir.ops.rms_norm(x, w, 1e-5))
    assert len(modules) == 1
    again = ir.parse(modules[0])
    assert str(again) == modules[0]
