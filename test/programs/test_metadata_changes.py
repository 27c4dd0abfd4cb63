"""Operators that change shape or strides of a tensor in place: of intermediates, of views, and of arguments."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Check = Callable[..., None]
Refused = Callable[..., None]


def numbers(*shape: int) -> Tensor:
    # A clone, for a tensor that is not a view itself: those cannot be detached in place.
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape).clone()


CHANGES: dict[str, tuple[Callable[[Tensor], object], tuple[int, ...]]] = {
    "t_": (lambda x: x.t_(), (2, 3)),
    "transpose_": (lambda x: x.transpose_(0, 2), (2, 3, 4)),
    "swapaxes_": (lambda x: x.swapaxes_(0, 1), (2, 3)),
    "swapdims_": (lambda x: x.swapdims_(0, 1), (2, 3)),
    "unsqueeze_": (lambda x: x.unsqueeze_(1), (2, 3)),
    "squeeze_": (lambda x: x.squeeze_(), (2, 1, 3)),
    "squeeze_ of one dimension": (lambda x: x.squeeze_(1), (2, 1, 3)),
    "squeeze_ of several dimensions": (lambda x: x.squeeze_((0, 1)), (1, 1, 3)),
    "as_strided_": (lambda x: x.as_strided_((2, 2), (1, 3), 1), (2, 3)),
    "detach_": (lambda x: x.detach_(), (2, 3)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_intermediate(name: str, check: Check) -> None:
    change, shape = CHANGES[name]

    def program(x: Tensor) -> object:
        y = x * 2
        change(y)
        y.add_(1)
        return y, x

    check(program, lambda: (numbers(*shape),), text=True)


@pytest.mark.parametrize("name", CHANGES)
def test_intermediate_that_is_never_written(name: str, check: Check) -> None:
    change, shape = CHANGES[name]

    def program(x: Tensor) -> object:
        y = x * 2
        change(y)
        return y.sum(0)

    check(program, lambda: (numbers(*shape),))


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "dynamo"])
def test_view_of_an_argument(name: str, dynamo: bool, check: Check) -> None:
    change, shape = CHANGES[name]
    if name == "detach_":
        pytest.skip("eager mode does not detach views in place")

    def program(x: Tensor) -> object:
        v = x.view(shape)
        before = v * 1
        change(v)
        v.mul_(2)
        return before, v * 1, x * 1

    check(program, lambda: (numbers(*shape).reshape(-1),), dynamo=dynamo)


@pytest.mark.parametrize("name", CHANGES)
def test_argument(name: str, check: Check) -> None:
    change, shape = CHANGES[name]

    def program(x: Tensor) -> object:
        before = x * 1
        change(x)
        after = x * 1
        x.add_(1)
        return before, after

    check(program, lambda: (numbers(*shape),), text=True)


@pytest.mark.parametrize("name", CHANGES)
def test_argument_of_which_only_the_shape_changes(name: str, check: Check) -> None:
    change, shape = CHANGES[name]

    def program(x: Tensor) -> object:
        change(x)
        return x.sum()

    check(program, lambda: (numbers(*shape),))


@pytest.mark.parametrize("name", CHANGES)
def test_argument_that_is_returned(name: str, check: Check) -> None:
    change, shape = CHANGES[name]

    def program(x: Tensor) -> object:
        change(x)
        return x, x.view_as(x)

    check(program, lambda: (numbers(*shape),))


def test_change_and_back(check: Check) -> None:
    def program(x: Tensor) -> object:
        x.t_()
        x[0].zero_()
        x.t_()
        return x * 1

    check(program, lambda: (numbers(3, 3),))


def test_argument_that_is_written_between_two_changes(check: Check) -> None:
    def program(x: Tensor) -> Tensor:
        x.t_()
        return x.add_(1).t_()

    check(program, lambda: (numbers(2, 3),), text=True)


def test_window_from_before_the_change(check: Check) -> None:
    def program(x: Tensor) -> object:
        row = x[1]
        x.t_()
        row.add_(5)
        x[1].mul_(2)
        return row * 1, x * 1

    check(program, lambda: (numbers(3, 3),))


REFUSED: dict[str, Callable[[Tensor], object]] = {
    "resize_ to more": lambda x: x.resize_(5, 5),
    "resize_ of an intermediate": lambda x: (x * 1).add_(1).resize_(2),
    "set_": lambda x: x.set_(torch.ones(3)),
    "resize_ of an out= tensor": lambda x: torch.cat([x, x], out=x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_resizing_is_refused(name: str, refused: Refused) -> None:
    refused(REFUSED[name], lambda: (numbers(2, 3),))
