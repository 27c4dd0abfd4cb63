"""In-place implementations in eager mode: nothing that the caller still owns changes, and results are right."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import ops, register_op

EPSILON = 1e-5
calls: list[tuple[int, ...]] = []


@register_op(allow_inplace=True)
def inplace_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    return ops.fused_add_rms_norm.native(x, x_residual, weight, epsilon, variance_size)


@inplace_norm.register_impl("writes", inplace=True)
def _(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    calls.append((x.data_ptr(), x_residual.data_ptr()))
    x_residual.add_(x)
    x.copy_(x_residual * torch.rsqrt(x_residual.pow(2).mean(-1, keepdim=True) + epsilon))
    return (x if weight is None else x.mul_(weight)), x_residual


@inplace_norm.register_impl("writes_views", inplace=True)
def _(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    calls.append((x.data_ptr(), x_residual.data_ptr()))
    hidden = x.shape[-1]
    left, right = x.view(-1, hidden), x_residual.view(-1, hidden)
    right.add_(left)
    left.copy_(right * torch.rsqrt(right.pow(2).mean(-1, keepdim=True) + epsilon))
    if weight is not None:
        left.mul_(weight)
    return left.view(x.shape), right.view(x_residual.shape)


@inplace_norm.register_impl("forgets", inplace=True)
def _(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """Overwrites its operands and returns other tensors; one of them is an argument that is no activation."""
    calls.append((x.data_ptr(), x_residual.data_ptr()))
    results = inplace_norm.native(x, x_residual, weight, epsilon, variance_size)
    x.fill_(float("nan"))
    x_residual.fill_(float("nan"))
    return results


@pytest.fixture(params=["writes", "writes_views", "forgets"])
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    calls.clear()
    with inplace_norm.set_priority([request.param]):
        yield request.param


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=generator) for shape in ((6, 8), (6, 8), (8,)))


def donated(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return inplace_norm.maybe_inplace(x, residual, weight, EPSILON)


def plain(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return inplace_norm(x, residual, weight, EPSILON)


def expected(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return inplace_norm.native(x.clone(), residual.clone(), weight.clone(), EPSILON)


def assert_equal(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    assert len(calls) > 0, "the implementation under test did not run"
    for left, right in zip(got, want, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


def test_functional_call_leaves_its_arguments(provider: str) -> None:
    args = tensors()
    got = plain(*args)
    assert_equal(got, expected(*tensors()))
    assert_equal(args, tensors())
    storages = {t.untyped_storage().data_ptr() for t in (*got, *args)}
    assert len(storages) == 5


def test_functional_call_on_views_leaves_their_bases(provider: str) -> None:
    x, residual, weight = tensors()
    got = plain(x[:4], residual[1:5], weight)
    fresh_x, fresh_residual, _ = tensors()
    assert_equal(got, expected(fresh_x[:4], fresh_residual[1:5], weight))
    assert_equal((x, residual), (fresh_x, fresh_residual))


def test_donated_activations_are_used_in_place(provider: str) -> None:
    x, residual, weight = tensors()
    got = donated(x, residual, weight)
    assert calls == [(x.data_ptr(), residual.data_ptr())]
    assert_equal(got, expected(*tensors()))
    if provider == "writes":
        assert got[0] is x
        assert got[1] is residual


Arguments = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def columns(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    left, right = torch.cat([x, residual], -1).split(8, -1)
    return left, right, weight


ALIASED: dict[str, tuple[Arguments, tuple[bool, bool]]] = {
    # name: (arguments, which of the two activations are used in place)
    "same twice": (lambda x, r, w: (x, x, w), (True, False)),
    "view of the other": (lambda x, r, w: (x, x.view(-1).view(6, 8), w), (True, False)),
    "overlapping rows": (lambda x, r, w: (x[:4], x[2:], w), (True, False)),
    "disjoint rows": (lambda x, r, w: (x[:3], x[3:], w), (True, True)),
    "disjoint columns": (columns, (True, True)),
    "weight is a row of x": (lambda x, r, w: (x, r, x[0]), (False, True)),
    "weight is a row of the residual": (lambda x, r, w: (x, r, r[2]), (True, False)),
    "all the same": (lambda x, r, w: (x[:1], x[:1], x[0]), (False, False)),
    "expanded": (lambda x, r, w: (x[:1].expand(6, 8), r, w), (False, True)),
    "transposed": (lambda x, r, w: (x.t().contiguous().t(), r.t().contiguous().t(), w), (True, True)),
}


@pytest.mark.parametrize("name", ALIASED)
@pytest.mark.parametrize("provider", ["writes"], indirect=True)
def test_aliased_arguments(provider: str, name: str) -> None:
    make, in_place = ALIASED[name]
    x, residual, weight = make(*tensors())
    want = expected(x, residual, weight)
    assert_equal(plain(x, residual, weight), want)
    calls.clear()
    got = donated(x, residual, weight)
    assert_equal(got, want)
    assert tuple(a == b.data_ptr() for a, b in zip(calls[0], (x, residual), strict=True)) == in_place
    got[0].zero_()
    assert torch.equal(got[1], want[1])


def test_functional_implementation_behind_the_donating_overload() -> None:
    args = tensors()
    got = ops.fused_add_rms_norm.maybe_inplace(*args, EPSILON)
    torch.testing.assert_close(got, expected(*args), rtol=0, atol=0)
    torch.testing.assert_close(args, tensors(), rtol=0, atol=0)


def test_a_result_is_never_an_argument_that_is_no_activation() -> None:
    @register_op(allow_inplace=True)
    def inplace_returns_weight(x: Tensor, weight: Tensor) -> Tensor:
        return weight * 1

    @inplace_returns_weight.register_impl("careless", inplace=True)
    def _(x: Tensor, weight: Tensor) -> Tensor:
        return weight

    weight = torch.ones(3)
    with inplace_returns_weight.set_priority(["careless"]):
        for call in (inplace_returns_weight, inplace_returns_weight.maybe_inplace):
            call(torch.zeros(3), weight).zero_()
            assert torch.equal(weight, torch.ones(3))


def test_chain_of_donating_calls_allocates_no_activation() -> None:
    x, residual, weight = tensors()
    want_x, want_residual = x.clone(), residual.clone()
    pointers = (x.data_ptr(), residual.data_ptr())
    with inplace_norm.set_priority(["writes"]):
        calls.clear()
        for _ in range(8):
            x, residual = donated(x, residual, weight)
            want_x, want_residual = expected(want_x, want_residual, weight)
    assert_equal((x, residual), (want_x, want_residual))
    assert calls == [pointers] * 8


def test_a_recorded_call_does_not_overwrite_what_backward_needs(provider: str) -> None:
    x, residual, weight = tensors()
    x.requires_grad_()
    got = donated(x, residual, weight)
    assert torch.equal(residual, tensors()[1])
    gradient = torch.autograd.grad(got[0].pow(2).sum() + got[1].sum(), x)[0]
    normed, total = inplace_norm.native(x, residual, weight, EPSILON)
    assert torch.equal(gradient, torch.autograd.grad(normed.pow(2).sum() + total.sum(), x)[0])
