"""Operators that give the elements of their operands in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected, dimension_of
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Number, element, shape
from vllm_ir.conversions.convert_to_stablehlo.takes import steps, take, window_indices
from vllm_ir.dialects import stablehlo
from vllm_ir.dialects.stablehlo import PadOp, ReverseOp
from vllm_ir.dialects.vllm_ir.types import contiguous_strides, strides_of

Index: TypeAlias = int | SSAValue
"""An index; a value where it is known only when the program runs."""


def _same(_b: Builder, value: SSAValue, *_args: object, **_keywords: object) -> SSAValue:
    return value


def _reshape(b: Builder, value: SSAValue, *_: object) -> SSAValue:
    return b.reshape(value, b.result.get_shape())


def _expand(b: Builder, value: SSAValue, *_args: object, **_keywords: object) -> SSAValue:
    return b.broadcast(value, b.result.get_shape())


def _permute(b: Builder, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
    rank = len(shape(value))
    return b.transpose(value, [dimension_of(index, rank) for index in permutation])


def _transpose(b: Builder, value: SSAValue, first: int, second: int) -> SSAValue:
    rank = len(shape(value))
    order = list(range(rank))
    if rank:
        one, other = dimension_of(first, rank), dimension_of(second, rank)
        order[one], order[other] = order[other], order[one]
    return b.transpose(value, order)


def _matrix_transpose(b: Builder, value: SSAValue) -> SSAValue:
    return b.transpose(value, list(range(len(shape(value))))[::-1])


def start_of(b: Builder, index: SSAValue, size: int) -> SSAValue:
    """A start that is known only at run time as `tensor<i32>`, counted from the front."""
    start = b.convert(b.reshape(index, ()), i32)
    return b.select(b.compare("LT", start, 0), b.binary(stablehlo.AddOp, start, size), start)


def starts_at(b: Builder, rank: int, dimension: int, start: SSAValue) -> list[SSAValue]:
    """Start indices that are zero except in one dimension."""
    zero = b.scalar(0, i32)
    return [start if index == dimension else zero for index in range(rank)]


def slice_range(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Where a slice with Python's bounds starts and ends."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _slice(
    b: Builder, value: SSAValue, dim: int = 0, start: Index | None = None, end: Index | None = None, step: int = 1
) -> SSAValue:
    sizes = shape(value)
    dimension = dimension_of(dim, len(sizes))
    if isinstance(start, SSAValue):
        return _slice_at(b, value, dimension, start, step)
    if isinstance(end, SSAValue):
        # The size of the result is known, so that the end follows from it.
        first, _ = slice_range(start, None, sizes[dimension])
        count = b.result.get_shape()[dimension]
        last = first + max(0, (count - 1) * step + 1) if count else first
    else:
        first, last = slice_range(start, end, sizes[dimension])
    return cut(b, value, dimension, first, last, step)


def cut(b: Builder, value: SSAValue, dimension: int, first: int, last: int, step: int = 1) -> SSAValue:
    """Elements from `first` to before `last` along one dimension."""
    sizes = shape(value)
    starts, limits, strides = [0] * len(sizes), list(sizes), [1] * len(sizes)
    starts[dimension], limits[dimension], strides[dimension] = first, last, step
    return b.slice(value, starts, limits, strides)


def _slice_at(b: Builder, value: SSAValue, dimension: int, start: SSAValue, step: int) -> SSAValue:
    if step != 1:
        raise Rejected(f"a slice with step {step} starts at an index that is known only when the program runs")
    sizes = shape(value)
    window = list(sizes)
    window[dimension] = b.result.get_shape()[dimension]
    starts = starts_at(b, len(sizes), dimension, start_of(b, start, sizes[dimension]))
    return b.emit(
        stablehlo.DynamicSliceOp,
        (value, *starts),
        b.tensor(window, element(value)),
        {"slice_sizes": b.integers(window)},
    )


def _select(b: Builder, value: SSAValue, dim: int, index: Index) -> SSAValue:
    sizes = shape(value)
    dimension = dimension_of(dim, len(sizes))
    if isinstance(index, SSAValue):
        window = [1 if place == dimension else size for place, size in enumerate(sizes)]
        starts = starts_at(b, len(sizes), dimension, start_of(b, index, sizes[dimension]))
        kind = b.tensor(window, element(value))
        piece = b.emit(stablehlo.DynamicSliceOp, (value, *starts), kind, {"slice_sizes": b.integers(window)})
    else:
        first = index + sizes[dimension] if index < 0 else index
        piece = cut(b, value, dimension, first, first + 1)
    return b.reshape(piece, b.result.get_shape())


def _pieces(b: Builder, value: SSAValue, _sizes: object = None, dim: int = 0, **_: object) -> Sequence[SSAValue]:
    """Pieces one behind the other, of the sizes that the results have."""
    dimension = dimension_of(dim, len(shape(value)))
    pieces: list[SSAValue] = []
    first = 0
    for kind in b.results:
        size = kind.get_shape()[dimension]
        pieces.append(cut(b, value, dimension, first, first + size))
        first += size
    return pieces


def _unbind(b: Builder, value: SSAValue, dim: int = 0) -> Sequence[SSAValue]:
    dimension = dimension_of(dim, len(shape(value)))
    return [
        b.reshape(cut(b, value, dimension, index, index + 1), kind.get_shape()) for index, kind in enumerate(b.results)
    ]


def _concatenate(b: Builder, tensors: Sequence[SSAValue], dim: int = 0) -> SSAValue:
    kept = [b.convert(tensor, b.result.element_type) for tensor in tensors if shape(tensor) != (0,)]
    if not kept:
        return b.splat(0, b.result)
    return b.concatenate(kept, dimension_of(dim, len(b.result.get_shape())))


def _stack(b: Builder, tensors: Sequence[SSAValue], dim: int = 0) -> SSAValue:
    rank = len(b.result.get_shape())
    dimension = dimension_of(dim, rank)
    sizes = list(b.result.get_shape())
    sizes[dimension] = 1
    parts = [b.reshape(b.convert(tensor, b.result.element_type), sizes) for tensor in tensors]
    return b.concatenate(parts, dimension)


def _flip(b: Builder, value: SSAValue, dims: Sequence[int]) -> SSAValue:
    rank = len(shape(value))
    reversed_dims = sorted(dimension_of(index, rank) for index in dims) if rank else []
    if not reversed_dims:
        return value
    return b.emit(ReverseOp, (value,), value.type, {"dimensions": b.integers(reversed_dims)})


def _roll(b: Builder, value: SSAValue, shifts: Sequence[int], dims: Sequence[int] = ()) -> SSAValue:
    sizes = shape(value)
    if not math.prod(sizes):
        return value
    if not dims:
        flat = b.reshape(value, (math.prod(sizes),))
        return b.reshape(_rolled(b, flat, 0, shifts[0]), sizes)
    for shift, dimension in zip(shifts, dims, strict=True):
        value = _rolled(b, value, dimension_of(dimension, len(sizes)), shift)
    return value


def _rolled(b: Builder, value: SSAValue, dimension: int, shift: int) -> SSAValue:
    size = shape(value)[dimension]
    if not shift % size:
        return value
    edge = size - shift % size
    return b.concatenate([cut(b, value, dimension, edge, size), cut(b, value, dimension, 0, edge)], dimension)


def _repeat(b: Builder, value: SSAValue, repeats: Sequence[int]) -> SSAValue:
    own = shape(value)
    sizes = (1,) * (len(repeats) - len(own)) + own
    pairs = [part for count, size in zip(repeats, sizes, strict=True) for part in (count, size)]
    places = [2 * (index + len(repeats) - len(own)) + 1 for index in range(len(own))]
    return b.reshape(b.broadcast_in(value, pairs, places), b.result.get_shape())


def _pad(b: Builder, value: SSAValue, pad: Sequence[int], fill: Number = 0) -> SSAValue:
    rank = len(shape(value))
    low, high = [0] * rank, [0] * rank
    for index in range(len(pad) // 2):
        low[rank - 1 - index], high[rank - 1 - index] = pad[2 * index], pad[2 * index + 1]
    return padded(b, value, low, high, fill)


def padded(b: Builder, value: SSAValue, low: Sequence[int], high: Sequence[int], fill: Number) -> SSAValue:
    """A value with elements added before and behind each dimension; negative counts take away."""
    sizes = [size + before + behind for size, before, behind in zip(shape(value), low, high, strict=True)]
    properties = {
        "edge_padding_low": b.integers(low),
        "edge_padding_high": b.integers(high),
        "interior_padding": b.integers([0] * len(sizes)),
    }
    operands = (value, b.scalar(fill, element(value)))
    return b.emit(PadOp, operands, b.tensor(sizes, element(value)), properties)


def _unfold(b: Builder, value: SSAValue, dimension: int, size: int, step: int) -> SSAValue:
    sizes = shape(value)
    if not sizes:
        return b.reshape(value, b.result.get_shape())
    place = dimension_of(dimension, len(sizes))
    count = b.result.get_shape()[place]
    taken = take(b, value, place, window_indices(b, (count, size), (step, 1), 0))
    split = b.reshape(taken, [*sizes[:place], count, size, *sizes[place + 1 :]])
    order = [index for index in range(len(sizes) + 1) if index != place + 1]
    return b.transpose(split, [*order, place + 1])


def diagonal_start(rows: int, columns: int, offset: int) -> tuple[int, int]:
    """First element of a diagonal of a row-major matrix, and how many it has."""
    first = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    return first, max(0, count)


def flat_matrices(b: Builder, value: SSAValue, first: int, second: int) -> tuple[SSAValue, list[int]]:
    """A value with two dimensions joined as its first, and the order that had brought them to the front."""
    sizes = shape(value)
    order = [first, second, *(index for index in range(len(sizes)) if index not in (first, second))]
    moved = b.transpose(value, order)
    return b.reshape(moved, (sizes[first] * sizes[second], *shape(moved)[2:])), order


def _diagonal(b: Builder, value: SSAValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> SSAValue:
    sizes = shape(value)
    first, second = dimension_of(dim1, len(sizes)), dimension_of(dim2, len(sizes))
    start, count = diagonal_start(sizes[first], sizes[second], offset)
    if not count:
        return b.splat(0, b.result)
    flat, _ = flat_matrices(b, value, first, second)
    taken = take(b, flat, 0, steps(b, count, start, sizes[second] + 1), True)
    return b.transpose(taken, [*range(1, len(shape(taken))), 0])


def storage_of(b: Builder, value: SSAValue) -> SSAValue:
    """The elements of a value in the order that eager mode has them in memory: `Rejected` unless there are no gaps."""
    strides = strides_of(b.source.operands[0].type) if b.source is not None else None
    sizes = shape(value)
    if strides is None or tuple(strides) == contiguous_strides(sizes):
        return b.reshape(value, (math.prod(sizes),))
    order = sorted(range(len(sizes)), key=lambda index: (-int(strides[index]), index))
    ordered = [sizes[index] for index in order]
    expected = contiguous_strides(ordered)
    for index, step in zip(order, expected, strict=True):
        if sizes[index] > 1 and strides[index] != step:
            raise Rejected(
                f"it looks at the memory of a tensor with strides {list(strides)}, which has gaps or overlaps; "
                "call contiguous() before"
            )
    return b.reshape(b.transpose(value, order), (math.prod(sizes),))


def _as_strided(
    b: Builder, value: SSAValue, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> SSAValue:
    if 0 in b.result.get_shape():
        return b.splat(0, b.result)
    indices = window_indices(b, size, stride, storage_offset or 0)
    return b.reshape(take(b, storage_of(b, value), 0, indices), b.result.get_shape())


def _views(names: Sequence[str], convert: Converter, overload: str = "default") -> dict[str, Converter]:
    """Under the names of an operator and of its form that copies."""
    return {f"aten.{name}{suffix}.{overload}": convert for name in names for suffix in ("", "_copy")}


CONVERSIONS: Mapping[str, Converter] = {
    **_views(("alias", "detach", "lift_fresh"), _same),
    **{f"aten.{name}.default": _same for name in ("clone", "contiguous", "lift", "positive")},
    **_views(("view", "squeeze", "unsqueeze", "_reshape_alias"), _reshape),
    **_views(("squeeze",), _reshape, "dim"),
    **_views(("squeeze",), _reshape, "dims"),
    **{f"aten.{name}.default": _reshape for name in ("_unsafe_view", "reshape", "flatten")},
    "aten.flatten.using_ints": _reshape,
    "prims.view_of.default": _same,
    **_views(("expand",), _expand),
    "aten.expand_as.default": _expand,
    **_views(("permute",), _permute),
    "prims.transpose.default": _permute,
    **_views(("transpose",), _transpose, "int"),
    **_views(("t",), _matrix_transpose),
    **_views(("slice",), _slice, "Tensor"),
    **_views(("select",), _select, "int"),
    **_views(("split",), _pieces, "Tensor"),
    **_views(("split_with_sizes",), _pieces),
    "aten.split.sizes": _pieces,
    "aten.unsafe_split.Tensor": _pieces,
    "aten.unsafe_split_with_sizes.default": _pieces,
    "aten.chunk.default": _pieces,
    "aten.unsafe_chunk.default": _pieces,
    **_views(("unbind",), _unbind, "int"),
    "aten.cat.default": _concatenate,
    "aten.stack.default": _stack,
    "aten.flip.default": _flip,
    "aten.roll.default": _roll,
    "aten.repeat.default": _repeat,
    "aten.constant_pad_nd.default": _pad,
    **_views(("unfold",), _unfold),
    **_views(("diagonal",), _diagonal),
    **_views(("as_strided",), _as_strided),
}
"""Converters of this family."""
