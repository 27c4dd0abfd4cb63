"""Routes: what is found out once for each kind of arguments, when it is used again, and what makes it void."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from vllm_ir.frontends.ops import enable_torch_wrap, register_op
from vllm_ir.frontends.ops import priority as priorities

asked: list[tuple[int, ...]] = []


@register_op(allow_inplace=True)
def direct_add(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    return x + y * scale


def takes(x: Tensor, y: Tensor, scale: float) -> bool:
    asked.append(tuple(x.shape))
    return x.dim() > 0 and not torch.is_autocast_enabled("cpu")


@direct_add.register_impl("over", inplace=True, supports_args=takes)
def over(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    return x.add_(y * scale).add_(10)


@direct_add.register_impl("fresh", supports_args=takes, batch_invariant=True)
def fresh(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    return x + y * scale + 20


@direct_add.register_impl("view")
def view(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    return y[:]


@register_op(allow_inplace=True)
def direct_pair(x: Tensor, x_other: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + y, x_other + y


@direct_pair.register_impl("over", inplace=True)
def pair_over(x: Tensor, x_other: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.add_(y), x_other.add_(y)


@pytest.fixture(autouse=True)
def no_routes() -> Iterator[None]:
    for op in (direct_add, direct_pair):
        op.routes.clear()
    asked.clear()
    with direct_add.set_priority(["fresh"]), direct_pair.set_priority(["over"]):
        yield


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("overload", ["default", "maybe_inplace"])
def test_predicates_are_asked_once_for_each_kind_of_arguments(overload: str, wrap: bool) -> None:
    call = direct_add if overload == "default" else direct_add.maybe_inplace
    x, longer = torch.ones(2), torch.ones(3)
    with enable_torch_wrap(wrap):
        for _ in range(3):  # two kinds that take turns
            assert call(x, torch.ones(2))[0].item() == 22
            assert call(longer, torch.ones(3))[0].item() == 22
        assert asked == [(2,), (3,)]
        call(x, torch.ones(2), 2.0)  # another number
        call(x.double(), torch.ones(2))
        call(torch.ones(2, 2)[:, 0], torch.ones(2))
        call(x=x, y=torch.ones(2), scale=2.0)
    assert len(asked) == 5


def test_more_kinds_than_are_kept_are_asked_again() -> None:
    for _ in range(2):
        for size in range(1, 18):
            direct_add(torch.ones(1), torch.ones(size))
    assert len(asked) == 34
    direct_add(torch.ones(1), torch.ones(16))
    direct_add(torch.ones(1), torch.ones(2))  # the oldest that is left; it comes to the front
    direct_add(torch.ones(1), torch.ones(18))
    direct_add(torch.ones(1), torch.ones(2))
    assert len(asked) == 35


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "mode", [_Dispatch, _Function, FakeTensorMode, forward_ad.dual_level, lambda: torch.device("cpu")]
)
@pytest.mark.parametrize("kept", [True, False])
def test_modes_see_the_op(mode: Callable[[], AbstractContextManager[object]], kept: bool) -> None:
    args = (torch.ones(2), torch.ones(2))
    if kept:
        assert direct_add.routes.of(args) is not None
    with mode():
        assert direct_add.routes.of(args) is None
    assert direct_add.routes.of(args) is not None


def test_transforms_and_tracers_see_the_op() -> None:
    inner, args, seen = (torch.ones(2), torch.ones(2)), (torch.ones(3, 2), torch.ones(3, 2)), []
    assert direct_add.routes.of(inner) is not None

    def look(x: Tensor, y: Tensor) -> Tensor:
        # Ordinary tensors, which are the only ones that a route could be there for.
        seen.append(direct_add.routes.of(inner))
        return x.sum() + y.sum()

    torch.func.vmap(look)(*args)
    torch.func.grad(look)(*args)
    torch.func.functionalize(look)(*args)
    torch.jit.trace(look, args, check_trace=False)
    assert seen == [None] * 4
    assert direct_add.routes.of(inner) is not None


def test_gradients_and_inference_are_other_kinds() -> None:
    x = torch.ones(2, requires_grad=True)
    assert direct_add.routes.of((x, x)) is None
    with torch.no_grad():
        assert direct_add.routes.of((x, x)) is not None
    assert direct_add(x, x).requires_grad  # through the dispatcher
    assert direct_add.routes.of((x, x)) is None
    with torch.inference_mode():
        assert direct_add(torch.ones(2), torch.ones(2)).is_inference()
    before = len(asked)
    direct_add(torch.ones(2), torch.ones(2))
    assert len(asked) == before + 1


def test_what_decides_is_seen_at_once() -> None:
    x, y = torch.ones(2), torch.ones(2)

    def chosen() -> float:
        return direct_add(x, y)[0].item()

    assert chosen() == 22
    with torch.autocast("cpu"):
        assert chosen() == 2  # the predicate refuses
    with ExitStack() as stack:
        stack.enter_context(direct_add.set_priority(["over", "view"]))
        assert (chosen(), x[0].item()) == (12, 1)
        stack.enter_context(priorities.only_batch_invariant())
        assert chosen() == 22
    assert chosen() == 22


def test_defaults_are_seen_at_once() -> None:
    @register_op
    def direct_default(x: Tensor) -> Tensor:
        return x + 1

    direct_default.register_impl("two")(lambda_two)
    found = [direct_default(torch.ones(1)).item()]
    direct_default.set_default(["two"])
    found += [direct_default(torch.ones(1)).item()]
    direct_default.clear_default()
    assert [*found, direct_default(torch.ones(1)).item()] == [2, 3, 2]


def lambda_two(x: Tensor) -> Tensor:
    return x + 2


def test_a_choice_that_is_overtaken_is_not_kept() -> None:
    @register_op
    def direct_overtaken(x: Tensor) -> Tensor:
        return x + 1

    def late(x: Tensor) -> bool:
        direct_overtaken.set_default(["two"])  # as another thread could while this one chooses
        return True

    direct_overtaken.register_impl("two")(lambda_two)
    direct_overtaken.register_impl("late", supports_args=late)(direct_overtaken.native)
    direct_overtaken.set_default(["late"])
    assert [direct_overtaken(torch.ones(1)).item() for _ in range(2)] == [2, 3]


def test_settings_that_end_out_of_order_keep_the_others() -> None:
    first, second = direct_add.set_priority(["view"]), priorities.only_batch_invariant()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert priorities.wants_batch_invariance()
    assert priorities.overridden("direct_add") == ("fresh",)
    second.__exit__(None, None, None)
    assert not priorities.wants_batch_invariance()


@pytest.mark.parametrize("overload", ["default", "maybe_inplace"])
def test_results_are_new_memory_in_every_call(overload: str) -> None:
    call = direct_add if overload == "default" else direct_add.maybe_inplace
    with direct_add.set_priority(["view"]):
        for _ in range(2):
            x, y = torch.ones(2), torch.ones(2)
            assert call(x, y).data_ptr() not in (x.data_ptr(), y.data_ptr())


@pytest.mark.parametrize("recording", [True, False])
def test_donated_tensors_are_results_and_their_versions_grow(recording: bool) -> None:
    with torch.set_grad_enabled(recording):
        for _ in range(2):
            x, other, y = torch.ones(2), torch.ones(2), torch.ones(2)
            results = direct_pair.maybe_inplace(x, other, y)
            assert results[0] is x
            assert results[1] is other
            assert x.tolist() == other.tolist() == [2, 2]
            assert (x._version, other._version) == ((2, 2) if recording else (1, 1))  # `add_` counts by itself
        with direct_add.set_priority(["over"]):
            assert [direct_add.maybe_inplace(x, y) is x for _ in range(2)] == [True, True]


def test_donation_looks_at_memory_in_every_call() -> None:
    memory = torch.zeros(6)
    parts = [memory[0:2], memory[2:4], memory[4:6]]

    def kept(x: Tensor, other: Tensor, y: Tensor) -> tuple[bool, bool]:
        """Whether the results are the arguments themselves, after comparing them."""
        memory.copy_(torch.arange(6.0))
        expected = direct_pair.native(x, other, y)
        got = direct_pair.maybe_inplace(x, other, y)
        assert all(map(torch.equal, got, expected))
        return got[0] is x, got[1] is other

    a, b, c = parts
    assert kept(a, b, c) == kept(c, a, b) == kept(b, c, a) == (True, True)  # apart, in any order
    for shared in ((a, b, a), (a, memory[1:3], c), (a, a, c), (memory[1:3], c, b), (b, memory[3:5], a)):
        assert not all(kept(*shared))
    assert kept(a, b, c) == (True, True)
