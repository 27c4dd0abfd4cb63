"""Programs written against vLLM's registry run on this one, which stands in for `vllm.ir`.

The behaviours are those that vLLM's unit tests of its registry and of its overload `maybe_inplace` describe.
"""

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

import vllm_ir
from vllm_ir.frontends.ops import priority

_numbers = count()
ALIASES = ("vllm", "vllm.ir", "vllm.ir.op", "vllm.ir.ops")


@pytest.fixture(autouse=True)
def alias() -> Iterator[None]:
    """Only here, `vllm.ir` is this package; ops that a test registers are gone after it."""
    before = {name: sys.modules.pop(name) for name in ALIASES if name in sys.modules}
    known = set(vllm_ir.IrOp.registry)
    vllm_ir.stand_in_for("vllm.ir")
    yield
    for name in set(vllm_ir.IrOp.registry) - known:
        vllm_ir.unregister(vllm_ir.IrOp.registry[name])
    for name in ALIASES:
        sys.modules.pop(name, None)
    sys.modules.update(before)


@pytest.fixture
def blend():
    """An op with three implementations: one more for all arguments, one in place, one for even rows only."""
    import vllm.ir

    # torch crashes when two overloads are defined again that were there once, so that each op has its own name.
    @vllm.ir.register_op(name=f"stand_in_blend_{next(_numbers)}", allow_inplace=True)
    def stand_in_blend(x: Tensor, y: Tensor) -> Tensor:
        return 3 * x + y

    @stand_in_blend.register_impl("plus_ten")
    def _(x: Tensor, y: Tensor) -> Tensor:
        return 3 * x + y + 10

    @stand_in_blend.register_impl("writes", inplace=True)
    def _(x: Tensor, y: Tensor) -> Tensor:
        return x.mul_(3).add_(y).add_(20)

    @stand_in_blend.register_impl("even", supports_args=lambda x, y: x.shape[-1] % 2 == 0)
    def _(x: Tensor, y: Tensor) -> Tensor:
        return 3 * x + y + 50

    return stand_in_blend


@pytest.fixture
def project():
    """An op with a default argument."""
    from vllm.ir import register_op

    @register_op
    def stand_in_project(x: Tensor, w: Tensor, offset: Tensor | None = None) -> Tensor:
        return x @ w if offset is None else x @ w + offset

    return stand_in_project


# --- the alias -------------------------------------------------------------------------------------------------------


def test_names_are_the_same_objects() -> None:
    import vllm.ir
    import vllm.ir.op
    from vllm import ir
    from vllm.ir import ops
    from vllm.ir.op import RESERVED_PROVIDERS, IrOp, IrOpImpl, IrOpInplaceOverload
    from vllm.ir.ops import fused_add_rms_norm

    assert ir is vllm.ir is vllm_ir
    assert vllm.ir.op.register_op is vllm.ir.register_op is vllm_ir.register_op
    assert (ops, IrOp, IrOpImpl) == (vllm_ir.ops, vllm_ir.IrOp, vllm_ir.IrOpImpl)
    assert fused_add_rms_norm is vllm_ir.ops.fused_add_rms_norm
    assert isinstance(fused_add_rms_norm.maybe_inplace, IrOpInplaceOverload)
    assert list(RESERVED_PROVIDERS) == ["native", "unfused"]


def test_an_alias_by_hand() -> None:
    for name in ALIASES:
        del sys.modules[name]
    sys.modules["vllm"] = ModuleType("vllm")
    sys.modules["vllm.ir"] = vllm_ir
    from vllm.ir import ops
    from vllm.ir.op import IrOp, IrOpInplaceOverload, register_op

    assert IrOp.registry["rms_norm"] is ops.rms_norm
    assert isinstance(ops.rms_norm.maybe_inplace, IrOpInplaceOverload)
    assert register_op is vllm_ir.register_op


def test_a_loaded_module_is_not_replaced() -> None:
    vllm_ir.stand_in_for("vllm.ir")  # again: nothing to do
    sys.modules["vllm.ir"] = ModuleType("vllm.ir")
    with pytest.raises(RuntimeError, match=r"'vllm\.ir' is loaded already, from None; call it before that import"):
        vllm_ir.stand_in_for("vllm.ir")
    for name in ("vllm", ".ir", "vllm.", "a.b.c"):
        with pytest.raises(ValueError, match="expected a name like"):
            vllm_ir.stand_in_for(name)


def test_an_installed_package_keeps_its_other_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stand_in_host").mkdir()
    (tmp_path / "stand_in_host" / "__init__.py").write_text("HERE = 1\n", encoding="utf-8")
    (tmp_path / "stand_in_host" / "kernels.py").write_text(
        "from stand_in_host import HERE, ir\nfrom stand_in_host.ir.op import IrOp\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    vllm_ir.stand_in_for("stand_in_host.ir")
    kernels = importlib.import_module("stand_in_host.kernels")
    assert (kernels.HERE, kernels.ir, kernels.IrOp) == (1, vllm_ir, vllm_ir.IrOp)
    for name in [name for name in sys.modules if name.startswith("stand_in_host")]:
        del sys.modules[name]


# --- registration ----------------------------------------------------------------------------------------------------


def test_ways_to_register() -> None:
    import vllm.ir
    from vllm.ir.op import IrOp

    def native(x: Tensor, y: Tensor) -> Tensor:
        return x - y

    called = vllm.ir.register_op()(native)
    assert (called.name, IrOp.registry["native"]) == ("native", called)
    named = vllm.ir.register_op(name="stand_in_named")(native)
    assert (named.name, IrOp.registry["stand_in_named"]) == ("stand_in_named", named)
    direct = IrOp("stand_in_direct", native)
    assert direct.name == "stand_in_direct"
    assert "stand_in_direct" not in IrOp.registry
    direct.undefine()
    with pytest.raises(AssertionError):
        vllm.ir.register_op(name="stand_in_named")(native)


def test_keyword_only_parameters_are_refused() -> None:
    import vllm.ir

    with pytest.raises(ValueError, match="keyword-only arguments"):

        @vllm.ir.register_op
        def stand_in_refused(x: Tensor, *, by: int = 1) -> Tensor:
            return x * by

    assert "stand_in_refused" not in vllm.ir.IrOp.registry


def test_the_decorated_name_is_the_op(blend) -> None:
    from vllm.ir.op import IrOp, IrOpInplaceOverload

    assert isinstance(blend, IrOp)
    assert IrOp.registry[blend.name] is blend
    packet = getattr(torch.ops.vllm_ir, blend.name)
    assert blend.torch_op is packet.default
    assert isinstance(blend.maybe_inplace, IrOpInplaceOverload)
    assert blend.maybe_inplace.torch_op is packet.maybe_inplace
    assert str(blend.schema).endswith("(Tensor x, Tensor y) -> Tensor")
    assert (list(blend.activations), list(blend.activation_indices)) == (["x"], [0])


def test_names_are_checked() -> None:
    import vllm.ir

    def native(x: Tensor) -> Tensor:
        return x + 1

    for name in ("Upper", "1st", "with-dash"):
        with pytest.raises(ValueError, match=r"name.*invalid"):
            vllm.ir.register_op(name=name)(native)
    op = vllm.ir.register_op(name="stand_in_fine_1")(native)
    op.register_impl("provider_1")(native)
    with pytest.raises(ValueError, match=r"name.*invalid"):
        op.register_impl("Provider-1")(native)


def test_where_something_was_registered_is_kept(blend) -> None:
    for registered in (blend, blend.impls["even"]):
        last = registered.registration_stack[-1]
        assert (last.filename, last.name) == (__file__, "blend")


def test_an_op_in_words(blend, project) -> None:
    import vllm.ir

    @vllm.ir.register_op
    def stand_in_described(x: Tensor) -> Tensor:
        """First line.

        The rest.
        """
        return x + 1

    assert str(stand_in_described) == "IrOp('stand_in_described'): First line."
    assert repr(stand_in_described) == "IrOp('stand_in_described')"
    assert str(project) == repr(project) == "IrOp('stand_in_project')"


# --- implementations -------------------------------------------------------------------------------------------------


def test_registering_an_implementation_changes_no_call(blend) -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    assert torch.equal(blend(x, y), 3 * x + y)
    assert torch.equal(blend.maybe_inplace(x, y), 3 * x + y)


def test_attributes_of_implementations(blend) -> None:
    from vllm.ir.op import IrOpImpl

    impl = blend.impls["plus_ten"]
    assert isinstance(impl, IrOpImpl)
    assert (impl.op, impl.provider, impl.inplace) == (blend, "plus_ten", False)
    assert impl.impl_fn(torch.ones(1), torch.ones(1)).item() == 14
    assert [name for name, impl in blend.impls.items() if impl.supports_all_args] == ["native", "plus_ten", "writes"]
    with pytest.raises(AssertionError):
        blend.register_impl("plus_ten")(blend.native)
    assert blend.impls["plus_ten"] is impl


def test_reserved_providers(blend) -> None:
    from vllm.ir.op import RESERVED_PROVIDERS

    for provider in RESERVED_PROVIDERS:
        with pytest.raises(AssertionError):

            @blend.register_impl(provider)
            def _(x, y):
                return x


def test_a_functional_form_of_an_implementation_in_place(blend) -> None:
    x, y = torch.ones(3), torch.ones(3)
    assert blend.impls["writes"].func_impl_fn(x, y).tolist() == [24.0] * 3
    assert x.tolist() == [1.0] * 3


def test_signatures_that_are_not_the_ops(project) -> None:
    def fewer(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    def renamed(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return x @ w

    def required(x: Tensor, w: Tensor, offset: Tensor) -> Tensor:
        return x @ w

    for fn in (fewer, renamed, required):
        with pytest.raises(ValueError, match="does not match native schema"):
            project.register_impl("other")(fn)
    for predicate, message in (
        (True, "supports_args must be a callable"),
        (lambda x, w: True, "number of parameters"),
        (lambda x, w, *, offset: True, "keyword-only parameters"),
        (lambda x, w, b: True, "does not match native parameter"),
        (lambda x, w, offset=1: True, "does not match native default"),
    ):
        with pytest.raises(ValueError, match=message):
            project.register_impl("other", supports_args=predicate)(project.native)
    assert list(project.impls) == ["native"]


def test_defaults_reach_predicates_and_implementations(project) -> None:
    asked: list[object] = []

    @project.register_impl("asks", supports_args=lambda x, w, offset=None: asked.append(offset) is None)
    def asks(x: Tensor, w: Tensor, offset: Tensor | None = None) -> Tensor:
        return x @ w + (5 if offset is None else 7)

    x, w = torch.ones(2, 3), torch.ones(3, 2)
    assert asks.supports_args(x, w)
    assert project.apply_arg_defaults(x, w) == ((x, w, None), {})
    assert project.apply_arg_defaults(x, w=w, offset=None) == ((x, w, None), {})
    with project.set_priority(["asks", "native"]):
        assert project.dispatch(x, w) is asks
        assert project(x, w)[0, 0].item() == 8
        assert project(x, w, torch.ones(2))[0, 0].item() == 10
    assert asked[0] is None


SOURCE = """
import torch

@op.register_impl("from_file")
def from_file(x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
    return x @ w - {by}  {comment}
"""


def test_the_hash_of_an_implementation_follows_its_code(project, tmp_path: Path) -> None:
    def uuid(by: int, comment: str = "") -> str:
        path = tmp_path / f"kernels_{by}_{len(comment)}.py"
        path.write_text(SOURCE.format(by=by, comment=comment), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("stand_in_kernels", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        vars(module)["op"] = project
        spec.loader.exec_module(module)
        found = project.impls["from_file"].uuid()
        project.remove_impl("from_file")
        return found

    assert uuid(99) == uuid(99)
    assert uuid(99) != uuid(98)
    # Unlike vLLM's, which hashes the whole file.
    assert uuid(99) == uuid(99, "# a comment")


# --- priorities ------------------------------------------------------------------------------------------------------


def test_priorities_are_scoped(blend) -> None:
    assert blend.get_priority() == []
    with blend.set_priority(["even", "writes"]):
        with blend.set_priority(["writes"]):
            assert blend.get_priority() == ["writes"]
        assert blend.get_priority() == ["even", "writes"]
        with contextlib.suppress(KeyError), blend.set_priority(["plus_ten"]):
            assert blend.get_priority() == ["plus_ten"]
            raise KeyError
        assert blend.get_priority() == ["even", "writes"]
    assert blend.get_priority() == []


@pytest.mark.parametrize("overload", ["default", "maybe_inplace"])
def test_the_first_of_the_list_runs(blend, overload: str) -> None:
    call = blend if overload == "default" else blend.maybe_inplace
    x, y = torch.tensor(1, dtype=torch.int32), torch.tensor(2, dtype=torch.int32)
    with blend.set_priority(["writes", "plus_ten"]):
        assert blend.dispatch(x, y) is blend.impls["writes"]
        assert [fn(x.clone(), y).item() for fn in (call, call.torch_op)] == [25, 25]
        with blend.set_priority(["plus_ten"]):
            assert blend.dispatch(x, y) is blend.impls["plus_ten"]
            assert [fn(x.clone(), y).item() for fn in (call, call.torch_op)] == [15, 15]


def test_what_is_not_supported_is_left_out(blend) -> None:
    @blend.register_impl("absent", supported=False)
    def _(x: Tensor, y: Tensor) -> Tensor:
        raise AssertionError("must not run")

    assert blend.supported_providers() == ["native", "plus_ten", "writes", "even"]
    with blend.set_priority(["absent", "plus_ten"]):
        assert blend.get_priority() == ["plus_ten"]
        assert blend(torch.ones(1), torch.ones(1)).item() == 14


def test_a_list_without_an_implementation_for_all_arguments(blend, caplog: pytest.LogCaptureFixture) -> None:
    two, three = torch.ones(2, 2), torch.ones(2, 3)
    with caplog.at_level(logging.WARNING), blend.set_priority(["even"]):
        (record,) = caplog.records  # before anything is called
        message = record.getMessage()
        assert all(part in message for part in (blend.name, "priority", "fallback to native"))
        assert blend.get_priority() == ["even", "native"]
        assert blend.dispatch(two, two) is blend.impls["even"]
        assert blend.dispatch(three, three) is blend.impls["native"]
        assert blend(two, two).unique().tolist() == [54]
        assert blend(three, three).unique().tolist() == [4]
    assert len(caplog.records) == 1


def test_without_a_priority_native_runs_and_a_warning_says_so(blend, caplog: pytest.LogCaptureFixture) -> None:
    priority.warn_of_missing_priority.cache_clear()
    x = torch.ones(1)
    with caplog.at_level(logging.WARNING):
        assert blend.dispatch(x, x) is blend.impls["native"]
        assert blend(x, x).item() == 4
    (record,) = caplog.records  # once for each op
    assert blend.name in record.getMessage()
    assert "priority not set" in record.getMessage()


# --- what tracers see ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("symbolic", [True, False])
@pytest.mark.parametrize("overload", ["default", "maybe_inplace"])
def test_tracers_see_one_node_where_calls_are_wrapped(blend, overload: str, symbolic: bool, wrapped: bool) -> None:
    import vllm.ir

    call = blend if overload == "default" else blend.maybe_inplace

    def program(x: Tensor, y: Tensor) -> Tensor:
        return call(x, y)

    def traced() -> fx.GraphModule:
        return fx.symbolic_trace(program) if symbolic else make_fx(program)(torch.ones(2, 2), torch.ones(2, 2))

    def nodes(graph: fx.GraphModule) -> int:
        return len(graph.graph.find_nodes(op="call_function", target=call.torch_op))

    with contextlib.suppress(KeyError), vllm.ir.enable_torch_wrap(wrapped):
        graph = traced()
        x, y = torch.randn(5, 4), torch.randn(5, 4)
        assert torch.equal(graph(x.clone(), y), program(x.clone(), y))
        raise KeyError  # the former setting comes back nevertheless
    assert nodes(graph) == int(wrapped)
    assert nodes(traced()) == 1


def test_the_setting_of_the_process(blend) -> None:
    import vllm.ir

    vllm.ir.set_default_torch_wrap(False)
    try:
        assert not fx.symbolic_trace(lambda x: blend(x, x)).graph.find_nodes(op="call_function", target=blend.torch_op)
    finally:
        vllm.ir.set_default_torch_wrap(True)


# --- maybe_inplace ---------------------------------------------------------------------------------------------------


def test_only_an_implementation_in_place_writes_and_only_what_is_given_away(blend) -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    kept = x.clone()
    with blend.set_priority(["plus_ten"]):
        results = [blend(x, y), blend.maybe_inplace(x, y)]
    assert torch.equal(x, kept)
    with blend.set_priority(["writes"]):
        functional = blend(x, y)
        assert torch.equal(x, kept)
        in_place = blend.maybe_inplace(x, y)
    assert in_place.data_ptr() == x.data_ptr()
    for result in results:
        assert torch.equal(result, 3 * kept + y + 10)
    for result in (functional, in_place):
        assert torch.equal(result, 3 * kept + y + 20)


def test_an_op_without_the_overload(project) -> None:
    assert not getattr(project, "maybe_inplace", None)
    with pytest.raises(AssertionError):
        project.register_impl("writes", inplace=True)


# --- what implementations are tested with ----------------------------------------------------------------------------


def test_input_generators(blend, project) -> None:
    @blend.register_input_generator
    def _(rows: int = 4) -> tuple[object, ...]:
        return torch.randn(rows, 3), torch.randn(rows, 3)

    assert blend.has_input_generator
    assert [tensor.shape for tensor in blend.generate_inputs()] == [(4, 3), (4, 3)]
    assert [tensor.shape for tensor in blend.generate_inputs(rows=2)] == [(2, 3), (2, 3)]
    assert not project.has_input_generator
    with pytest.raises(RuntimeError, match="No input generator"):
        project.generate_inputs()


def test_tolerances(blend) -> None:
    assert blend.get_tolerance(torch.float32) == {"atol": 1e-5, "rtol": 1.3e-6}
    blend.override_tolerance(torch.float32, atol=0.5, rtol=0.25)
    assert blend.get_tolerance(torch.float32) == {"atol": 0.5, "rtol": 0.25}
    assert blend.get_tolerance(torch.float16) == {"atol": 1e-3, "rtol": 1e-3}
    with pytest.raises(ValueError, match="No tolerance defined"):
        blend.get_tolerance(torch.complex64)
