"""Which bytes of a storage windows cover: whether two may overlap, and whether one covers another.

A window is a set of bytes `offset + i_1 * stride_1 + ... + i_n * stride_n`, the innermost dimension being the bytes of
an element. Two windows are compared dimension by dimension, from the largest stride inwards: where everything inside
fits between two steps, the steps and what is inside can be judged apart. Numbers are integers or polynomials; what
cannot be decided counts as overlapping and as not covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from xdsl.ir import Attribute

from vllm_ir.conversions.analysis.polynomials import Number, divide, equal, not_greater, parse
from vllm_ir.dialects.vllm_ir.types import BufferType, byte_size, offset_of, sizes_of, strides_of

_EXACT_LIMIT = 1 << 20
"""Windows of up to this many bytes are compared byte by byte when their dimensions do not decide."""


@dataclass(frozen=True)
class Region:
    """Bytes from `offset` on, with `(stride, size)` for each dimension of more than one step, in bytes."""

    offset: Number
    dimensions: tuple[tuple[Number, Number], ...]

    @property
    def end(self) -> Number:
        """The byte behind the last."""
        return self.offset + _span(self.dimensions)


def _span(dimensions: Sequence[tuple[Number, Number]]) -> Number:
    return 1 + sum((size - 1) * stride for stride, size in dimensions)


def _number(value: int | str) -> Number | None:
    """An integer or a polynomial; None for a size that nothing is known of."""
    return value if isinstance(value, int) else parse(value)


@lru_cache(maxsize=8192)
def region_of(window: BufferType) -> Region | None:
    """The bytes of a window; None if it is empty or nothing is known of them."""
    width = byte_size(window.element_type)
    sizes = [_number(size) for size in sizes_of(window)]
    strides = _strides(window, sizes)
    offset = _number(offset_of(window))
    if strides is None or offset is None or any(size is None for size in sizes):
        return None
    dimensions: list[tuple[Number, Number]] = [(1, width)] if width > 1 else []
    for size, stride in zip(cast("list[Number]", sizes), strides, strict=True):
        if not equal(size, 1) and not equal(stride, 0):
            dimensions.append((stride * width, size))
    return Region(offset * width, _merged(dimensions))


def _merged(dimensions: Sequence[tuple[Number, Number]]) -> tuple[tuple[Number, Number], ...]:
    """The same bytes in as few dimensions as possible: steps that fill the step of another are one with it."""
    merged = list(dimensions)
    changed = True
    while changed:
        changed = False
        for inner in merged:
            step = inner[0] * inner[1]
            outer = next((other for other in merged if other is not inner and equal(other[0], step)), None)
            if outer is not None:
                merged = [other for other in merged if other is not inner and other is not outer]
                merged.append((inner[0], inner[1] * outer[1]))
                changed = True
                break
    return tuple(merged)


def _strides(window: BufferType, sizes: Sequence[Number | None]) -> list[Number] | None:
    known = strides_of(window)
    if known is not None:
        strides = [_number(stride) for stride in known]
        return None if any(stride is None for stride in strides) else cast("list[Number]", strides)
    steps: list[Number] = []
    step: Number = 1
    for size in reversed(sizes):
        if size is None:
            return None
        steps.append(step)
        step = step * size
    return steps[::-1]


def is_empty(window: BufferType) -> bool:
    """Whether a window has no elements for certain."""
    return 0 in sizes_of(window)


def may_overlap(first: Attribute, second: Attribute) -> bool:
    """Whether two windows onto one storage may have a byte in common; False for what is no window."""
    return isinstance(first, BufferType) and isinstance(second, BufferType) and _may_overlap(first, second)


@lru_cache(maxsize=1 << 15)
def _may_overlap(first: BufferType, second: BufferType) -> bool:
    if is_empty(first) or is_empty(second):
        return False
    if first == second:
        return True
    one, other = region_of(first), region_of(second)
    return one is None or other is None or not _disjoint(one, other)


@lru_cache(maxsize=1 << 15)
def covers(outer: BufferType, inner: BufferType) -> bool:
    """Whether every byte of `inner` surely is one of `outer`."""
    if outer == inner or is_empty(inner):
        return True
    one, other = region_of(outer), region_of(inner)
    return one is not None and other is not None and not _repeats_nothing(outer) and _covers(one, other)


def _repeats_nothing(window: BufferType) -> bool:
    """Whether a window may be empty because of a dimension of stride 0, which its region does not show."""
    steps = zip(sizes_of(window), strides_of(window) or (), strict=False)
    sizes = [_number(size) for size, stride in steps if stride == 0]
    return any(size is None or not not_greater(1, size) for size in sizes)


@lru_cache(maxsize=4096)
def is_dense(window: BufferType) -> bool:
    """Whether a window surely has every byte from its first to its last, each once."""
    if is_empty(window):
        return True
    repeated = any(
        stride == 0 and size != 1 for size, stride in zip(sizes_of(window), strides_of(window) or (), strict=False)
    )
    return not repeated and (region := region_of(window)) is not None and _is_dense(region)


def fills(windows: Iterable[BufferType], whole: BufferType) -> bool:
    """Whether windows surely have every byte of another one, which has no gaps, among them."""
    if (target := region_of(whole)) is None:
        return is_empty(whole)
    regions = [region for window in windows if (region := region_of(window)) is not None]
    filled, dense = target.offset, [region for region in regions if _is_dense(region)]
    while not not_greater(target.end, filled):
        ends = [r.end for r in dense if not_greater(r.offset, filled) and not not_greater(r.end, filled)]
        if not ends:
            known = [found for region in regions if (found := _bytes(region)) is not None]
            wanted = _bytes(target)
            return wanted is not None and bool(known) and bool(np.isin(wanted, np.concatenate(known)).all())
        filled = ends[0]
    return True


def same_window(first: BufferType, second: BufferType) -> bool:
    """Whether equal positions of two windows onto one storage are the same bytes."""
    if first == second:
        return True
    if first.element_type != second.element_type or first.shape != second.shape:
        return False
    sizes = [[_number(size) for size in sizes_of(window)] for window in (first, second)]
    strides = [_strides(window, size) for window, size in zip((first, second), sizes, strict=True)]
    offsets = [_number(offset_of(window)) for window in (first, second)]
    if strides[0] is None or strides[1] is None or offsets[0] is None or offsets[1] is None:
        return False
    known = [(size, other) for size, other in zip(*sizes, strict=True) if size is not None and other is not None]
    steps = zip(known, strides[0], strides[1], strict=False)
    return (
        len(known) == len(sizes[0])
        and equal(offsets[0], offsets[1])
        and all(equal(*pair) and (equal(pair[0], 1) or equal(one, other)) for pair, one, other in steps)
    )


# Comparing dimension by dimension


@dataclass(frozen=True)
class _Steps:
    """A region as steps of some stride, `first <= step < last`, and the region within one step."""

    first: Number
    last: Number
    inner: Region


def _in_steps(region: Region, stride: Number) -> _Steps | None:
    """`region` in steps of `stride`, if what is inside of a step does not reach into the next."""
    outer = [size for step, size in region.dimensions if equal(step, stride)]
    inner = tuple((step, size) for step, size in region.dimensions if not equal(step, stride))
    if len(outer) > 1:
        return None
    quotient, remainder = divide(region.offset, stride)
    if not not_greater(0, remainder) or not not_greater(remainder + _span(inner), stride):
        return None
    return _Steps(quotient, quotient + (outer[0] if outer else 1), Region(remainder, inner))


def _largest_stride(first: Region, second: Region) -> Number | None:
    strides = [stride for stride, _ in (*first.dimensions, *second.dimensions)]
    for stride in strides:
        if all(not_greater(other, stride) for other in strides):
            return stride
    return None


def _apart(first: Region, second: Region) -> tuple[_Steps, _Steps] | None:
    stride = _largest_stride(first, second)
    if stride is None:
        return None
    one, other = _in_steps(first, stride), _in_steps(second, stride)
    return None if one is None or other is None else (one, other)


def _disjoint(first: Region, second: Region) -> bool:
    if not_greater(first.end, second.offset) or not_greater(second.end, first.offset):
        return True
    if (pair := _apart(first, second)) is None:
        ours, theirs = _bytes(first), _bytes(second)
        return ours is not None and theirs is not None and not np.isin(ours, theirs).any()
    one, other = pair
    if not_greater(one.last, other.first) or not_greater(other.last, one.first):
        return True
    return _disjoint(one.inner, other.inner)


def _covers(outer: Region, inner: Region) -> bool:
    if not outer.dimensions:
        return not inner.dimensions and equal(outer.offset, inner.offset)
    if _is_dense(outer):
        return not_greater(outer.offset, inner.offset) and not_greater(inner.end, outer.end)
    if (pair := _apart(outer, inner)) is None:
        ours, theirs = _bytes(outer), _bytes(inner)
        return ours is not None and theirs is not None and bool(np.isin(theirs, ours).all())
    one, other = pair
    within = not_greater(one.first, other.first) and not_greater(other.last, one.last)
    return within and _covers(one.inner, other.inner)


def _is_dense(region: Region) -> bool:
    """Whether a region has every byte from its first to its last."""
    remaining = list(region.dimensions)
    step: Number = 1
    while remaining:
        found = next((item for item in remaining if equal(item[0], step)), None)
        if found is None:
            return False
        remaining.remove(found)
        step = step * found[1]
    return True


def _bytes(region: Region) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """All bytes of a region, if they are known and few."""
    positions = np.zeros(1, dtype=np.int64)
    for stride, size in region.dimensions:
        if not isinstance(stride, int) or not isinstance(size, int) or len(positions) * size > _EXACT_LIMIT:
            return None
        positions = (positions[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return positions + region.offset if isinstance(region.offset, int) else None
