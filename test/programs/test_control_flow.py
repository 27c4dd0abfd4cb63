"""`torch.cond` and `while_loop`: buffers as operands, writes around them and to intermediates inside them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import while_loop

Check = Callable[..., None]


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_read_what_was_written(sign: int, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x[0].add_(1)
        chosen = torch.cond(y.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))
        x.add_(chosen)
        return chosen, x * 1

    check(program, lambda: (numbers(2, 3), numbers(2, 3) * sign), dynamo=True)


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_write_intermediates(sign: int, check: Check) -> None:
    def double(a: Tensor) -> Tensor:
        b = a * 2
        b[0].zero_()
        b.t()[1].add_(5)
        return b

    def shift(a: Tensor) -> Tensor:
        b = a.clone()
        b.sub_(1)
        return b

    def program(x: Tensor, y: Tensor) -> object:
        result = torch.cond(y.sum() > 0, double, shift, (x,))
        result.mul_(3)
        x.copy_(result)
        return result

    check(program, lambda: (numbers(2, 3), numbers(2, 3) * sign), dynamo=True)


def test_two_conditions_one_behind_the_other(check: Check) -> None:
    def program(x: Tensor) -> object:
        a = torch.cond(x.sum() > 3, lambda v: v + 1, lambda v: v - 1, (x,))
        x.add_(a)
        b = torch.cond(x.sum() > 100, lambda v: v + 1, lambda v: v - 1, (x,))
        return a, b

    check(program, lambda: (numbers(2, 3),), dynamo=True)


def test_loop(check: Check) -> None:
    def body(i: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        b = a + 1
        b[0].mul_(2)
        return i + 1, b

    def program(x: Tensor) -> object:
        x[1].zero_()
        count, last = while_loop(lambda i, a: i < 4, body, (torch.tensor(0), x))
        x.copy_(last)
        return count, last

    check(program, lambda: (numbers(2, 3),), dynamo=True)


def test_nested_conditions(check: Check) -> None:
    def inner(a: Tensor) -> Tensor:
        return torch.cond(a[0, 0] > 1, lambda v: v * 2, lambda v: v * 3, (a,))

    def program(x: Tensor) -> object:
        x.sub_(0.5)
        return torch.cond(x.sum() > 3, inner, lambda v: v - 1, (x,))

    check(program, lambda: (numbers(2, 3),), dynamo=True)
