"""Calls of ops: through torch's operators or past them, straight to a kernel where nothing watches, and warnings."""

import logging

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from vllm_ir.frontends.ops import enable_torch_wrap, ops, register_op
from vllm_ir.frontends.ops.direct import are_plain

calls: list[str] = []


@register_op(allow_inplace=True)
def calls_add(x: Tensor, y: Tensor) -> Tensor:
    calls.append("native")
    return x + y


@calls_add.register_impl("fresh")
def fresh(x: Tensor, y: Tensor) -> Tensor:
    calls.append("fresh")
    return x + y + 10


@calls_add.register_impl("over", inplace=True)
def over(x: Tensor, y: Tensor) -> Tensor:
    calls.append("over")
    return x.add_(y).add_(20)


@calls_add.register_impl("even", supports_args=lambda x, y: x.shape[-1] % 2 == 0)
def even(x: Tensor, y: Tensor) -> Tensor:
    calls.append("even")
    return x + y + 50


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("tracer", ["symbolic_trace", "make_fx"])
@pytest.mark.parametrize("overload", ["default", "maybe_inplace"])
def test_tracers_see_one_node_or_what_the_implementation_calls(overload: str, tracer: str, wrap: bool) -> None:
    call = calls_add if overload == "default" else calls_add.maybe_inplace

    def trace() -> fx.GraphModule:
        if tracer == "symbolic_trace":
            return fx.symbolic_trace(lambda x, y: call(x, y))
        return make_fx(lambda x, y: call(x, y))(torch.ones(2), torch.ones(2))

    with enable_torch_wrap(wrap):
        traced = trace()
    with pytest.raises(KeyError), enable_torch_wrap(not wrap):
        raise KeyError
    x, y = torch.ones(5, 4), torch.ones(5, 4)
    assert torch.equal(traced(x, y), x + y)
    assert len(traced.graph.find_nodes(op="call_function", target=call.torch_op)) == int(wrap)
    assert len(trace().graph.find_nodes(op="call_function", target=call.torch_op)) == 1


@pytest.mark.parametrize("wrap", [True, False])
def test_dynamo_follows_the_setting_and_the_priority(wrap: bool) -> None:
    torch._dynamo.reset()
    targets: list[object] = []

    def backend(gm: fx.GraphModule, inputs: list[Tensor]):
        targets.extend(node.target for node in gm.graph.nodes if node.op == "call_function")
        return gm.forward

    x = torch.ones(2, 3)
    with enable_torch_wrap(wrap), calls_add.set_priority(["even", "fresh"]):
        got = torch.compile(lambda x: calls_add(x, x), backend=backend, fullgraph=True)(x)
        again = torch.compile(lambda x: calls_add(x, x), backend=backend, fullgraph=True)(x[:, :2])
    assert torch.equal(got, x + x + 10)
    assert torch.equal(again, (x + x + 50)[:, :2])
    assert (calls_add.torch_op in targets) == wrap


def test_plain_calls_go_straight_to_the_kernel() -> None:
    calls.clear()
    seen: list[object] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.ones(2)
    with calls_add.set_priority(["fresh"]):
        calls_add(x, x)
        with Watching():
            calls_add(x, y=x)
    assert calls == ["fresh", "fresh"]
    assert seen[0] is calls_add.torch_op
    assert are_plain([x, 1, 2.0, None, "s"])
    with_gradient = torch.ones(2, requires_grad=True)
    assert not are_plain([with_gradient])
    with torch.no_grad():
        assert are_plain([with_gradient])
    for watched in ([torch.ones(2, device="meta")], [[x]], [torch.ones(2).as_subclass(type("Sub", (Tensor,), {}))]):
        assert not are_plain(watched)
    assert torch.func.vmap(lambda row: calls_add(row, row))(torch.ones(3, 2)).shape == (3, 2)


def test_the_choice_follows_arguments_priorities_and_registrations() -> None:
    x, odd = torch.ones(2), torch.ones(3)
    with calls_add.set_priority(["even"]):
        assert [calls_add(x, x)[0].item(), calls_add(odd, odd)[0].item()] == [52, 2]
        with calls_add.set_priority(["fresh"]):
            assert calls_add(x, x)[0].item() == 12
        assert calls_add(x, x)[0].item() == 52
        late = calls_add.register_impl("late")(lambda_like)
    with calls_add.set_priority(["late"]):
        assert calls_add(x, x)[0].item() == 92
        calls_add.remove_impl("late")
        calls_add.register_impl("late")(fresh.impl_fn)
        assert calls_add(x, x)[0].item() == 12
    calls_add.remove_impl("late")
    assert late.supports_all_args


def lambda_like(x: Tensor, y: Tensor) -> Tensor:
    return x + y + 90


def test_without_effects_and_with() -> None:
    x, y = torch.ones(3), torch.ones(3)
    assert torch.equal(over.func_impl_fn(x, y), torch.full((3,), 22.0))
    assert torch.equal(x, torch.ones(3))
    with calls_add.set_priority(["over"]), enable_torch_wrap(False):
        assert torch.equal(calls_add(x, y), torch.full((3,), 22.0))
        assert torch.equal(x, torch.ones(3))
        assert calls_add.maybe_inplace(x, y).data_ptr() == x.data_ptr()


def test_autograd_notices_that_what_it_saved_was_overwritten() -> None:
    weight = torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    product = weight * x
    with calls_add.set_priority(["over"]):
        calls_add.maybe_inplace(x, torch.ones(3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_warnings_come_once(caplog: pytest.LogCaptureFixture) -> None:
    @register_op
    def calls_warned(x: Tensor) -> Tensor:
        return x + 1

    def accepts_some(x: Tensor) -> bool:
        return x.dim() == 1

    caplog.set_level(logging.WARNING, "vllm_ir")
    calls_warned(torch.ones(1))
    assert not caplog.records  # there is nothing but the native definition
    calls_warned.register_impl("some", supports_args=accepts_some)(calls_warned.native)
    for _ in range(2):
        calls_warned(torch.ones(2))
    assert ["calls_warned: priority not set" in record.getMessage() for record in caplog.records] == [True]
    caplog.clear()
    for _ in range(2):
        with calls_warned.set_priority(["some"]):
            calls_warned(torch.ones(2, 2))
    assert ["fallback to native is possible" in record.getMessage() for record in caplog.records] == [True]
    with calls_warned.set_priority(["some", "native"]), calls_warned.set_priority(["native"]):
        assert len(caplog.records) == 1
    assert ops.calls_warned is calls_warned
