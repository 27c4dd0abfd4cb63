"""Windows onto tensors: which elements of a row-major tensor a value is, and in which order.

A window has sizes, strides and an offset in elements, as a view in PyTorch, and starts that are known only when the
program runs. Slices, transpositions and reshapes of a window are windows, except reshapes that need other elements
between the given ones. Dimensions of one element have stride 0, so that windows are compared without them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import SSAValue


@dataclass(frozen=True, eq=False)
class Start:
    """Moves a window by `stride` times a value, which is clamped to `0 .. limit`."""

    value: SSAValue
    stride: int
    limit: int

    @property
    def key(self) -> tuple[int, int, int]:
        """What equal starts have in common; their values are compared by identity."""
        return (self.stride, self.limit, id(self.value))


@dataclass(frozen=True, eq=False)
class Window:
    """Elements `offset + sum(index * stride)` of a tensor of `total` elements, moved by `starts`."""

    total: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    starts: tuple[Start, ...] = ()

    @staticmethod
    def of(sizes: Sequence[int]) -> Window:
        """All of a tensor of these sizes, each at least 1."""
        return Window(math.prod(sizes), tuple(sizes), row_major(sizes))

    @cached_property
    def key(self) -> object:
        """What windows with the same elements in the same order have in common, apart from dimensions of size 1."""
        return (self.offset, tuple(self.long_dimensions), tuple(sorted(start.key for start in self.starts)))

    @cached_property
    def long_dimensions(self) -> list[tuple[int, int]]:
        """Size and stride of dimensions longer than 1."""
        return [(size, stride) for size, stride in zip(self.sizes, self.strides, strict=True) if size != 1]

    @cached_property
    def is_whole(self) -> bool:
        """Whether it is all elements in their order."""
        return self.offset == 0 and not self.starts and self.strides == row_major(self.sizes) and self.is_full

    @property
    def is_full(self) -> bool:
        """Whether it has as many elements as the tensor."""
        return math.prod(self.sizes) == self.total

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The first and the last element that it may have."""
        extent = sum((size - 1) * stride for size, stride in self.long_dimensions)
        return self.offset, self.offset + extent + sum(start.limit * start.stride for start in self.starts)

    def narrowed(self, starts: Sequence[int | SSAValue], sizes: Sequence[int]) -> Window:
        """A part of the window; starts are clamped so that it is one."""
        offset, moved = self.offset, list(self.starts)
        for start, size, length, stride in zip(starts, sizes, self.sizes, self.strides, strict=True):
            if size == length:
                continue
            if isinstance(start, int):
                offset += min(max(start, 0), length - size) * stride
            else:
                moved.append(Start(start, stride, length - size))
        strides = tuple(0 if size == 1 else stride for size, stride in zip(sizes, self.strides, strict=True))
        return Window(self.total, tuple(sizes), strides, offset, tuple(moved))

    def permuted(self, order: Sequence[int]) -> Window:
        """The window with its dimension `order[i]` as dimension `i`."""
        sizes, strides = tuple(self.sizes[at] for at in order), tuple(self.strides[at] for at in order)
        return Window(self.total, sizes, strides, self.offset, self.starts)

    def reshaped(self, sizes: Sequence[int]) -> Window | None:
        """The same elements in another shape, if that is a window."""
        strides = _reshaped(self.long_dimensions, sizes)
        return None if strides is None else Window(self.total, tuple(sizes), strides, self.offset, self.starts)


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor in row-major order, 0 for dimensions of one element."""
    strides, step = [0] * len(sizes), 1
    for at in reversed(range(len(sizes))):
        if sizes[at] != 1:
            strides[at] = step
            step *= sizes[at]
    return tuple(strides)


def _reshaped(dimensions: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a shape over given dimensions, from the last one: each run without gaps is split anew."""
    strides, at = [0] * len(sizes), len(sizes) - 1
    for length, step in reversed(_runs(dimensions)):
        while at >= 0 and length > 1:
            if sizes[at] != 1:
                if length % sizes[at]:
                    return None
                strides[at], step, length = step, step * sizes[at], length // sizes[at]
            at -= 1
        if length > 1:
            return None
    return tuple(strides)


def _runs(dimensions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Dimensions, those joined that follow each other without gaps."""
    runs: list[tuple[int, int]] = []
    for size, stride in dimensions:
        if runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs
