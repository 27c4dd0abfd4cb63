"""Writes through chains of views, and siblings that overlap: what each window holds before and afterwards."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Step = Callable[[Tensor], Tensor]
Check = Callable[..., None]


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)


# From three dimensions to at least two, or from two to at least one.
FIRST: dict[str, Step] = {
    "select": lambda x: x[1],
    "slice": lambda x: x[:, 1:4:2],
    "permute": lambda x: x.permute(2, 0, 1),
    "flatten": lambda x: x.flatten(0, 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split([1, 3], 2)[1],
    "unsafe split": lambda x: torch.unsafe_split_with_sizes(x, [1, 3], 2)[1],
    "unfold": lambda x: x.unfold(2, 2, 2),
    "as_strided": lambda x: x.as_strided((3, 4), (5, 2), 3),
    "as bits": lambda x: x.view(torch.int32),
    "negative": lambda x: x.unsqueeze(0).expand(1, -1, -1, -1),
}
SECOND: dict[str, Step] = {
    "last": lambda x: x[-1],
    "step": lambda x: x[..., ::2],
    "transpose": lambda x: x.transpose(0, -1),
    "pieces": lambda x: x.chunk(2, -1)[0],
    "diagonal": lambda x: x.diagonal(0, 0, -1),
    "unsqueeze": lambda x: x.unsqueeze(-2),
    "as_strided": lambda x: x.as_strided((2, 2), (7, 1), 4),
}
THIRD: dict[str, Step] = {
    "nothing": lambda x: x,
    "first": lambda x: x[..., 0],
    "detach": lambda x: x.detach(),
}


def write(x: Tensor) -> None:
    x.mul_(3)
    x.add_(torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape))


@pytest.mark.parametrize("first", FIRST)
def test_chains(first: str, check: Check) -> None:
    """Each chain on a base of its own; every window of the chain is read before and after the write."""
    steps = [(FIRST[first], second, third) for second, third in itertools.product(SECOND.values(), THIRD.values())]

    def one(base: Tensor, chain: tuple[Step, Step, Step]) -> object:
        windows = [base]
        for step in chain:
            windows.append(step(windows[-1]))
        before = [window * 1 for window in windows]
        write(windows[-1])
        after = [window * 1 for window in windows]
        write(windows[1])
        return before, after, [window * 1 for window in windows]

    def program(bases: list[Tensor]) -> object:
        return [one(base, chain) for base, chain in zip(bases, steps, strict=True)]

    check(program, lambda: ([numbers(2, 4, 4) for _ in steps],))


SIBLINGS: dict[str, tuple[Step, Step]] = {
    "overlapping slices": (lambda x: x[0:5], lambda x: x[3:8]),
    "disjoint slices": (lambda x: x[0:4], lambda x: x[4:8]),
    "even and odd": (lambda x: x[::2], lambda x: x[1::2]),
    "row and column": (lambda x: x[2], lambda x: x[:, 3]),
    "diagonal and row": (lambda x: x.diagonal(), lambda x: x[1]),
    "flat and transposed": (lambda x: x.view(64), lambda x: x.t()),
    "pieces of one chunk": (lambda x: x.chunk(3)[0], lambda x: x.chunk(3)[1]),
    "bits and slice": (lambda x: x.view(torch.int32)[1], lambda x: x[:2]),
    "bytes and element": (lambda x: x.view(torch.uint8)[0, ::4], lambda x: x[0, :3]),
    "strided and slice": (lambda x: x.as_strided((4, 4), (1, 9), 2), lambda x: x[1:3]),
    "windows of unfold": (lambda x: x.unfold(1, 3, 3), lambda x: x[:, 1:5]),
    "the same view twice": (lambda x: x[1:6], lambda x: x[1:6]),
    "a view and its base": (lambda x: x[1:6], lambda x: x),
}


@pytest.mark.parametrize("name", SIBLINGS)
@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "dynamo"])
def test_siblings(name: str, dynamo: bool, check: Check) -> None:
    take = SIBLINGS[name]

    def program(base: Tensor) -> object:
        a, b = (step(base) for step in take)
        seen = [b * 1]
        a.mul_(2)
        seen += [b * 1, base * 1]
        b.add_(5)
        seen += [a * 1, base * 1]
        a[..., 0] = 3
        b[...] = 7
        return seen, a * 1, b * 1

    check(program, lambda: (numbers(8, 8),), dynamo=dynamo, text=not dynamo)


@pytest.mark.parametrize("name", SIBLINGS)
def test_siblings_of_an_intermediate(name: str, check: Check) -> None:
    take = SIBLINGS[name]

    def program(source: Tensor) -> object:
        base = source + 1
        a, b = (step(base) for step in take)
        a.mul_(2)
        kept = b.clone()
        b.copy_(b + 1)
        a.zero_()
        return base, kept, source

    check(program, lambda: (numbers(8, 8),))


def test_window_that_is_made_after_the_write_sees_it(check: Check) -> None:
    def program(x: Tensor) -> object:
        x[1].zero_()
        late = x[:, 1]
        late.add_(1)
        return x.t()[1] * 1, late * 1

    check(program, lambda: (numbers(3, 3),))


def test_copy_between_overlapping_windows_by_way_of_a_clone(check: Check) -> None:
    def program(x: Tensor) -> object:
        x[1:].copy_(x[:-1].clone())
        return x * 1

    check(program, lambda: (numbers(6, 2),))


def test_source_is_another_window_of_the_destination(check: Check) -> None:
    def program(x: Tensor) -> object:
        x[:3].copy_(x[3:])
        x[:, 0].add_(x[:, 1])
        x[0].mul_(x[0])
        return x * 1

    check(program, lambda: (numbers(6, 2),))


def test_swap_of_two_arguments(check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)
        return x + y

    check(program, lambda: (numbers(3), numbers(3) * 10))


def test_swap_of_halves(check: Check) -> None:
    def program(x: Tensor) -> None:
        kept = x[:2] * 1
        x[:2] = x[2:]
        x[2:] = kept

    check(program, lambda: (numbers(4, 2),))


def test_value_that_an_argument_had_is_returned(check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        old = x.clone()
        x.copy_(y)
        y.add_(1)
        return old, x.clone(), y.clone()

    check(program, lambda: (numbers(3), numbers(3) * 10))


def test_write_that_is_overwritten_and_write_of_the_same(check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x.add_(1)
        x.copy_(y)
        y.copy_(y)
        x.copy_(x)
        return x.sum()

    check(program, lambda: (numbers(3), numbers(3) * 10))


def test_empty_windows(check: Check) -> None:
    def program(x: Tensor) -> object:
        x[2:2].add_(1)
        x[:, 0:0].copy_(x[:, 3:3])
        x[1:1] = 5
        return x[2:2] * 1, x * 1

    check(program, lambda: (numbers(3, 3),))


def test_scalars(check: Check) -> None:
    def program(x: Tensor) -> object:
        v = x.view(1).expand(1, 1)[0, 0]
        v.add_(2)
        x.mul_(2)
        return v * 1, x.unsqueeze(0) * 1

    check(program, lambda: (torch.tensor(3.0),))


def test_dynamic_sizes(check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        a = x[1:].t()
        a.add_(y)
        x.view(-1)[::2].mul_(2)
        x.unflatten(1, (2, -1))[:, 1].copy_(x[:, :3])
        for piece in x.split(2):
            piece.add_(1)
        return a * 1, x.flatten() * 1

    check(program, lambda: (numbers(7, 6), numbers(6, 6)), dynamo=True, dynamic=True)
