"""Windows as boxes: ranges of indices in a tensor that is reshaped for it.

The strides of a window say in which shape its tensor has to be for the window to be a box, so two windows are compared
by giving the tensor a shape in which both are one. What cannot be compared that way counts as overlapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vllm_ir.conversions.narrow_updates.windows import Start, Window, row_major


@dataclass(frozen=True, eq=False)
class BoxDimension:
    """One dimension of a box: `length` elements of `size`, from `first` on, moved by `starts`.

    `stride` is that of the dimension in the tensor; `dimension` the one of the window that it is, if it is one.
    """

    size: int
    stride: int
    first: int
    length: int
    starts: tuple[Start, ...] = ()
    dimension: int | None = None
    step: int = 1
    """The start is divided by this, and the remainder by `size` taken if it `wraps`."""
    wraps: bool = False


@dataclass
class _Range:
    """Indices `first` to before `last` along a dimension; `exact` unless some of them are not in the window."""

    stride: int
    first: int
    last: int
    exact: bool = True


def box_of(window: Window, shape: Sequence[int]) -> list[BoxDimension] | None:
    """The window as a box in its tensor, as close to `shape`, that of the tensor, as can be; None if it is none.

    Each dimension of the window that is longer than 1 is one of the box.
    """
    dimensions = enumerate(zip(window.sizes, window.strides, strict=True))
    lengths = {stride: (at, size) for at, (size, stride) in dimensions if size != 1}
    if len(lengths) != len(window.long_dimensions):
        return None
    ranges = _ranges(window, window.starts)
    if ranges is None:
        return None
    for stride in sorted(set(row_major(shape)) - {0}, reverse=True):
        _split_leading(ranges, stride, window.total)
    outer = window.total
    box: list[BoxDimension] = []
    for entry in ranges:
        at, length = lengths.get(entry.stride, (None, 1))
        starts = tuple(start for start in window.starts if start.stride == entry.stride)
        box.append(BoxDimension(outer // entry.stride, entry.stride, entry.first, length, starts, at))
        outer = entry.stride
    return _with_short(box, shape)


def _with_short(box: list[BoxDimension], shape: Sequence[int]) -> list[BoxDimension]:
    """The box with the dimensions of size 1 that the tensor has, if it has its shape else; without any otherwise."""
    short = BoxDimension(1, 0, 0, 1)
    long = [entry for entry in box if entry.size != 1]
    if [entry.size for entry in long] != [size for size in shape if size != 1]:
        return long or [short]
    entries = iter(long)
    return [short if size == 1 else next(entries) for size in shape]


def split_sizes(entry: BoxDimension, strides: Sequence[int]) -> list[int]:
    """The sizes of the tensor's own dimensions that one of a box is, from the strides of these."""
    outer, sizes = entry.stride * entry.size, list[int]()
    for stride in sorted(set(strides), reverse=True):
        if entry.stride < stride < outer:
            if outer % stride or stride % entry.stride:
                return [entry.size]
            sizes.append(outer // stride)
            outer = stride
    return [*sizes, outer // entry.stride] if entry.stride else [entry.size]


def with_own_dimensions(box: Sequence[BoxDimension], shape: Sequence[int]) -> list[BoxDimension]:
    """A box with places that are known only at run time taken apart, so that the tensor can keep its shape."""
    strides, parts = row_major(shape), list[BoxDimension]()
    for entry in box:
        sizes = split_sizes(entry, strides) if entry.starts and entry.length == 1 else [entry.size]
        if len(sizes) == 1:
            parts.append(entry)
            continue
        for part, size in enumerate(sizes):
            step = math.prod(sizes[part + 1 :])
            parts.append(replace(entry, size=size, stride=entry.stride * step, step=step, wraps=part > 0))
    return parts


def are_disjoint(one: Window, other: Window) -> bool:
    """Whether two windows onto one tensor are known to have no element in common, wherever they start."""
    if not one.starts and not other.starts and (one.reach[1] < other.reach[0] or other.reach[1] < one.reach[0]):
        return True
    own, others = _without_common(one, other)
    first, second = _ranges(one, own), _ranges(other, others)
    if first is None or second is None or not _aligned(first, second, one.total):
        return False
    return any(a.last <= b.first or b.last <= a.first for a, b in zip(first, second, strict=True))


def is_within(inner: Window, outer: Window) -> bool:
    """Whether all elements of a window are known to be elements of the other one."""
    if outer.is_full:
        return True
    own, others = _without_common(inner, outer)
    first, second = _ranges(inner, own), _ranges(outer, others)
    if others or first is None or second is None or not _aligned(first, second, inner.total):
        return False
    return all(b.exact and b.first <= a.first and a.last <= b.last for a, b in zip(first, second, strict=True))


def _without_common(one: Window, other: Window) -> tuple[list[Start], list[Start]]:
    """The starts of each window that the other one does not have."""
    own, others = list(one.starts), list(other.starts)
    for start in one.starts:
        match = next((given for given in others if given.key == start.key), None)
        if match is not None:
            own.remove(start)
            others.remove(match)
    return own, others


def _ranges(window: Window, starts: Iterable[Start]) -> list[_Range] | None:
    """Ranges that a window is the product of, for all values of `starts`; outermost first. None if it is no product."""
    lengths = {stride: size for size, stride in window.long_dimensions}
    for start in starts:
        lengths[start.stride] = lengths.get(start.stride, 1) + start.limit
    moved = {start.stride for start in starts}
    outer, rest = window.total, window.offset
    ranges: list[_Range] = []
    for stride in sorted(lengths.keys() | {1}, reverse=True):
        if outer % stride:
            return None
        first, rest = divmod(rest, stride)
        last = first + lengths.get(stride, 1)
        if last > outer // stride:
            return None
        ranges.append(_Range(stride, first, last, stride not in moved))
        outer = stride
    return ranges


def _split_leading(ranges: list[_Range], stride: int, total: int) -> None:
    """Make a dimension with this stride of the outer part of another one, if the range is in one of its rows."""
    outer = total
    for at, entry in enumerate(ranges):
        if entry.stride == stride:
            return
        if entry.stride < stride:
            row = stride // entry.stride
            if stride % entry.stride or outer % stride or entry.first // row != (entry.last - 1) // row:
                return
            index = entry.first // row
            inner = _Range(entry.stride, entry.first - index * row, entry.last - index * row, entry.exact)
            ranges[at : at + 1] = [_Range(stride, index, index + 1), inner]
            return
        outer = entry.stride


def _aligned(first: list[_Range], second: list[_Range], total: int) -> bool:
    """Split ranges so that both windows have the same dimensions; False if that cannot be."""
    for ranges, others in ((first, second), (second, first)):
        for stride in [entry.stride for entry in others]:
            if not _split(ranges, stride, total):
                return False
    return True


def _split(ranges: list[_Range], stride: int, total: int) -> bool:
    """Make two dimensions of the one in which a stride lies; the inner range gets larger where it is none."""
    outer = total
    for at, entry in enumerate(ranges):
        if entry.stride == stride:
            return True
        if entry.stride < stride:
            if stride % entry.stride or outer % stride:
                return False
            row = stride // entry.stride
            first, last = entry.first // row, (entry.last - 1) // row + 1
            if last - first == 1:
                inner = _Range(entry.stride, entry.first - first * row, entry.last - first * row, entry.exact)
                ranges[at : at + 1] = [_Range(stride, first, last), inner]
                return True
            exact = entry.exact and entry.first % row == 0 and entry.last % row == 0
            ranges[at : at + 1] = [_Range(stride, first, last, exact), _Range(entry.stride, 0, row, exact)]
            return True
        outer = entry.stride
    return False
