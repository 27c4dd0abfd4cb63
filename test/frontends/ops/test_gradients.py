"""Gradients of ops equal those of their native definitions, eager and compiled."""

from collections.abc import Callable

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.autograd import forward_ad

from vllm_ir.frontends.ops import ops, register_op

EPSILON = 1e-5


@register_op(allow_inplace=True)
def gradient_list(x: Tensor, others: list[Tensor], powers: list[int], weight: Tensor | None = None) -> Tensor:
    total = x
    for other, power in zip(others, powers, strict=True):
        total = total * other.pow(power)
    return total if weight is None else total * weight


@register_op(allow_inplace=True)
def gradient_mixed(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """One result that can be differentiated and one that cannot."""
    return x * 2, x.argmax(-1)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


def loss(results: object) -> Tensor:
    several = results if isinstance(results, tuple) else (results,)
    return sum((i + 1) * t.float().pow(3).sum() for i, t in enumerate(several))


CASES: dict[str, Callable[[torch.dtype], tuple[object, ...]]] = {
    "rms_norm": lambda dtype: (random(6, 8, dtype=dtype), random(8, seed=1), EPSILON, 4),
    "fused_add_rms_norm": lambda dtype: (random(6, 8, dtype=dtype), random(6, 8, seed=1), None, EPSILON),
    "silu_and_mul": lambda dtype: (random(6, 8, dtype=dtype),),
    "gelu_and_mul": lambda dtype: (random(6, 8, dtype=dtype), "tanh"),
    "dynamic_per_token_scaled_fp8_quant": lambda dtype: (random(6, 8, dtype=dtype), torch.tensor([1.5])),
    "per_token_group_int8_quant": lambda dtype: (random(6, 8, dtype=dtype), 4),
    "rotary_embedding": lambda dtype: (
        torch.arange(6),
        random(6, 16, dtype=dtype),
        random(6, 8, seed=1),
        8,
        random(10, 4),
        False,
    ),
    "gradient_list": lambda dtype: (random(6, dtype=dtype), [random(6, seed=1), random(6, seed=2)], [2, 3]),
}


def differentiable_in(args: tuple[object, ...]) -> list[Tensor]:
    flat = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
    return [t for t in flat if isinstance(t, Tensor) and t.requires_grad]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_the_native_definitions(name: str, dtype: torch.dtype) -> None:
    args = CASES[name](dtype)
    inputs = differentiable_in(args)
    want = torch.autograd.grad(loss(ops[name].native(*args)), inputs)
    for call in filter(None, (ops[name], ops[name].maybe_inplace)):
        got = torch.autograd.grad(loss(call(*args)), inputs)
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["rms_norm", "fused_add_rms_norm", "silu_and_mul", "gelu_and_mul", "rotary_embedding"])
def test_gradients_through_aot_autograd(name: str) -> None:
    torch._dynamo.reset()
    args = CASES[name](torch.float32)
    inputs = differentiable_in(args)
    want = torch.autograd.grad(loss(ops[name].native(*args)), inputs)
    for call in (ops[name].torch_op, ops[name].maybe_inplace):
        compiled = torch.compile(lambda *a, call=call: call(*a), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(torch.autograd.grad(loss(compiled(*args)), inputs), want, rtol=0, atol=0)


def test_the_graph_of_a_training_step_has_one_forward_node() -> None:
    torch._dynamo.reset()
    graphs: list[list[object]] = []

    def compiler(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        graphs.append([n.target for n in gm.graph.nodes if "vllm_ir" in str(n.target)])
        return make_boxed_func(gm.forward)

    x, residual, weight = random(6, 8), random(6, 8, seed=1), random(8, seed=2)
    compiled = torch.compile(
        lambda *a: loss(ops.fused_add_rms_norm.maybe_inplace(*a, EPSILON)),
        backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler),
        fullgraph=True,
    )
    compiled(x, residual, weight).backward()
    # Backward reads the activations, so the recorded call is the functional one.
    assert graphs == [[ops.fused_add_rms_norm.torch_op], []]


def test_only_what_needs_a_gradient_gets_one() -> None:
    x, weight = random(6, 8).detach(), random(8, seed=1)
    loss(ops.rms_norm(x, weight, EPSILON)).backward()
    assert x.grad is None
    assert weight.grad is not None
    with torch.no_grad():
        assert not ops.rms_norm(x, weight, EPSILON).requires_grad
    assert not ops.rms_norm(x, None, EPSILON).requires_grad


def test_only_one_of_two_results_is_used() -> None:
    args = random(6, 8), random(6, 8, seed=1), random(8, seed=2), EPSILON
    for result in (0, 1):
        got = torch.autograd.grad(ops.fused_add_rms_norm(*args)[result].pow(2).sum(), args[:3], allow_unused=True)
        want = torch.autograd.grad(
            ops.fused_add_rms_norm.native(*args)[result].pow(2).sum(), args[:3], allow_unused=True
        )
        for g, w in zip(got, want, strict=True):
            assert (g is None) == (w is None)
            assert g is None or torch.equal(g, w)


def test_a_result_without_gradient() -> None:
    x, scale = random(6, 8), random(1)
    doubled, index = gradient_mixed(x, scale)
    assert doubled.requires_grad
    assert not index.requires_grad
    doubled.sum().backward()
    assert torch.equal(x.grad, torch.full((6, 8), 2.0))
    assert scale.grad is None


def test_gradients_of_an_implementation_come_from_the_native_definition() -> None:
    @register_op(allow_inplace=True)
    def gradient_detached(x: Tensor) -> Tensor:
        return x * x

    @gradient_detached.register_impl("kernel", inplace=True)
    def _(x: Tensor) -> Tensor:
        return x.mul_(x)

    x = random(4)
    before = x.detach().clone()
    with gradient_detached.set_priority(["kernel"]):
        for call in (gradient_detached, gradient_detached.maybe_inplace):
            (gradient,) = torch.autograd.grad(call(x).sum(), x)
            assert torch.equal(gradient, 2 * x)
            assert torch.equal(x, before)


def test_an_argument_overwritten_before_backward_is_noticed() -> None:
    x, weight = random(6, 8), random(8, seed=1)
    h = x * 1
    y = ops.rms_norm(h, weight, EPSILON)
    h.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", ["rms_norm", "silu_and_mul"])
def test_second_derivative(name: str) -> None:
    args = CASES[name](torch.float32)
    inputs = differentiable_in(args)

    def second(call: Callable[..., object]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(loss(call(*args)), inputs, create_graph=True)
        return torch.autograd.grad(sum(t.pow(2).sum() for t in first), inputs)

    # The same products, summed in another order: rounding of float32 sums of a handful of terms.
    torch.testing.assert_close(second(ops[name]), second(ops[name].native), rtol=1e-5, atol=1e-5)


def test_forward_mode_and_function_transforms_use_the_native_definition() -> None:
    x, tangent, weight = (random(*shape).detach() for shape in ((6, 8), (6, 8), (8,)))

    def op(x: Tensor) -> Tensor:
        return ops.rms_norm(x, weight, EPSILON)

    def native(x: Tensor) -> Tensor:
        return ops.rms_norm.native(x, weight, EPSILON)

    def scalar(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: f(x).pow(3).sum()

    with forward_ad.dual_level():
        got = forward_ad.unpack_dual(op(forward_ad.make_dual(x, tangent))).tangent
        want = forward_ad.unpack_dual(native(forward_ad.make_dual(x, tangent))).tangent
    assert want.abs().sum() > 0
    assert torch.equal(got, want)
    torch.testing.assert_close(torch.func.jvp(op, (x,), (tangent,)), torch.func.jvp(native, (x,), (tangent,)))
    assert torch.equal(torch.func.grad(scalar(op))(x), torch.func.grad(scalar(native))(x))
