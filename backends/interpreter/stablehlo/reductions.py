"""Operations that combine elements by a region: `reduce`, `reduce_window`, `select_and_scatter`, `map`.

The order of a reduction: the elements stand in row-major order, neighbours are combined, then neighbours among what
that gives, and so on; the initial value is combined with the last result, on its left. The specification permits any
order that a tree over the elements has. Each step is what the region says, rounded as it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import I64, DenseArrayBase
from xdsl.ir import Operation, Region

from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.indexing import updated
from vllm_ir.backends.interpreter.stablehlo.shapes import padded
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.dialects import stablehlo as hlo
from vllm_ir.dialects.stablehlo.windows import padding_pairs, window_count


def folded(frame: Frame, body: Region, arrays: Sequence[Array]) -> list[Array]:
    """Arrays without their last dimension, whose elements, at least one, are combined by `body`."""
    values = list(arrays)
    while (count := values[0].shape[-1]) > 1:
        paired = count - count % 2
        pairs = [value[..., start:paired:2] for start in (0, 1) for value in values]
        combined = frame.apply(body, pairs)
        values = [np.concatenate([new, old[..., paired:]], -1) for new, old in zip(combined, values, strict=True)]
    return [value[..., 0] for value in values]


def _reduced(frame: Frame, body: Region, arrays: Sequence[Array], initial: Sequence[Array]) -> list[Array]:
    """Like `folded`, also of no elements, with a value to begin with."""
    if arrays[0].shape[-1] == 0:
        return [np.broadcast_to(value, array.shape[:-1]) for value, array in zip(initial, arrays, strict=True)]
    return frame.apply(body, [*initial, *folded(frame, body, arrays)])


def _reduce(frame: Frame, op: hlo.ReduceOp, values: Sequence[Array]) -> list[Array]:
    inputs, initial = _halves(values)
    dimensions = sorted(op.dimensions.get_values())
    kept = [axis for axis in range(inputs[0].ndim) if axis not in dimensions]
    shape = inputs[0].shape
    sizes = [*(shape[axis] for axis in kept), math.prod(shape[axis] for axis in dimensions)]
    return _reduced(frame, op.body, [value.transpose(kept + dimensions).reshape(sizes) for value in inputs], initial)


def _halves(values: Sequence[Array]) -> tuple[Sequence[Array], Sequence[Array]]:
    half = len(values) // 2
    return values[:half], values[half:]


def _entries(given: DenseArrayBase[I64] | None, rank: int) -> list[int]:
    return [1] * rank if given is None else list(given.get_values())


def _reduce_window(frame: Frame, op: hlo.ReduceWindowOp, values: Sequence[Array]) -> list[Array]:
    inputs, initial = _halves(values)
    rank = inputs[0].ndim
    edges = padding_pairs(op.padding, rank)
    interior = [dilation - 1 for dilation in _entries(op.base_dilations, rank)]
    wide = [padded(value, start, edges, interior) for value, start in zip(inputs, initial, strict=True)]
    windows, dilations = list(op.window_dimensions.get_values()), _entries(op.window_dilations, rank)
    strides = _entries(op.window_strides, rank)
    counts = [
        window_count(size, window, stride, 0, 0, dilation)
        for size, window, stride, dilation in zip(wide[0].shape, windows, strides, dilations, strict=True)
    ]
    elements = [
        np.stack([value[place] for place in _window_places(windows, dilations, strides, counts)], -1) for value in wide
    ]
    return _reduced(frame, op.body, elements, initial)


def _window_places(
    windows: Sequence[int], dilations: Sequence[int], strides: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[slice, ...]]:
    """For each place in a window, in row-major order, where all windows have it."""
    for offsets in np.ndindex(*windows):
        yield tuple(
            slice(offset * dilation, offset * dilation + (count - 1) * stride + 1 if count else 0, stride)
            for offset, dilation, stride, count in zip(offsets, dilations, strides, counts, strict=True)
        )


def _select_and_scatter(frame: Frame, op: hlo.SelectAndScatterOp, values: Sequence[Array]) -> Array:
    """What each window selects of its elements, those that are padding left out, gets the window's source."""
    operand, source, initial = values
    rank = operand.ndim
    windows, strides = _entries(op.window_dimensions, rank), _entries(op.window_strides, rank)
    lows = [low for low, _ in padding_pairs(op.padding, rank)]
    chosen = np.zeros(source.shape, operand.dtype)
    place = np.full(source.shape, -1)
    flat, starts = operand.reshape(-1), np.indices(source.shape)
    for offsets in np.ndindex(*windows):
        at = [start * stride - low + by for start, stride, low, by in zip(starts, strides, lows, offsets, strict=True)]
        inside = np.ones(source.shape, np.bool_)
        for index, size in zip(at, operand.shape, strict=True):
            inside &= (index >= 0) & (index < size)
        here = np.ravel_multi_index(at, operand.shape, mode="clip")
        candidate = flat[here]
        (keeps,) = frame.apply(op.select, [chosen, candidate])
        takes = inside & ((place < 0) | ~keeps)
        chosen, place = np.where(takes, candidate, chosen), np.where(takes, here, place)
    target = np.full(operand.shape, initial, operand.dtype)
    return updated(frame, op.scatter, [target], place, place >= 0, [source])[0]


def _map(frame: Frame, op: hlo.MapOp, values: Sequence[Array]) -> list[Array]:
    return frame.apply(op.computation[0], values)


REDUCTIONS: Mapping[type[Operation], Evaluator] = {
    hlo.MapOp: _map,
    hlo.ReduceOp: _reduce,
    hlo.ReduceWindowOp: _reduce_window,
    hlo.SelectAndScatterOp: _select_and_scatter,
}
"""What each operation gives for its operands."""
