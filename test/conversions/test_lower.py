"""`lower`: which implementation is chosen, what is recorded, and how often it is traced."""

import pytest
import torch
from torch import Tensor
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.conversions.lower import LowerPass
from vllm_ir.dialects.torch.call import CallOp

_KERNELS = torch.library.Library("lower_test", "DEF")
_KERNELS.define("scale_(Tensor(a!) x, float factor) -> ()")
_KERNELS.impl("scale_", lambda x, factor: (x.mul_(factor), None)[1], "CompositeExplicitAutograd")
torch.library.register_fake("lower_test::scale_", lambda x, factor: None, lib=_KERNELS)

traces: list[str] = []


@ir.register_op
def lower_test_scale(x: Tensor, factor: float) -> Tensor:
    """`x` times `factor`."""
    traces.append("native")
    return x * factor


@lower_test_scale.register_impl("inplace", supports_args=lambda x, factor: x.dtype == torch.float32, inplace=True)
def _inplace(x: Tensor, factor: float) -> Tensor:
    traces.append("inplace")
    torch.ops.lower_test.scale_(x, factor)
    return x


@lower_test_scale.register_impl("wrong_dtype")
def _wrong_dtype(x: Tensor, factor: float) -> Tensor:
    return (x * factor).double()


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


def test_wrong_result_type_stops():
    refused = pytest.raises(PassFailedException, match=r"'wrong_dtype'.*f64")
    with lower_test_scale.set_priority(["wrong_dtype"]), refused:
        lowered(lambda x: lower_test_scale(x, 2.0), torch.ones(3))


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
