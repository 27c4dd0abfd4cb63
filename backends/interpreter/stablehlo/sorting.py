"""`sort`, by the order that its comparator gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.dialects import stablehlo as hlo


def _sort(frame: Frame, op: hlo.SortOp, values: Sequence[Array]) -> list[Array]:
    """Neighbours that are in the wrong order change places, until there are none: the order of equals stays."""
    if not values[0].ndim:
        return list(values)
    dimension = -1 if op.dimension is None else op.dimension.value.data
    rows = [np.moveaxis(value, dimension, -1).copy() for value in values]
    count, quiet = rows[0].shape[-1], 0
    for number in range(count):  # as many rounds as there are elements are enough for any order
        start = number % 2
        end = start + (count - start) // 2 * 2
        left = [row[..., start:end:2] for row in rows]
        right = [row[..., start + 1 : end : 2] for row in rows]
        # The comparator takes two elements of the first operand, two of the second, and so on.
        pairs = [value for one, other in zip(left, right, strict=True) for value in (other, one)]
        (wrong,) = frame.apply(op.comparator, pairs)
        for row, one, other in zip(rows, left, right, strict=True):
            first, second = np.where(wrong, other, one), np.where(wrong, one, other)
            row[..., start:end:2], row[..., start + 1 : end : 2] = first, second
        quiet = 0 if wrong.any() else quiet + 1
        if quiet == 2:  # nothing to change from even places on, nor from odd ones
            break
    return [np.moveaxis(row, -1, dimension) for row in rows]


SORTING: Mapping[type[Operation], Evaluator] = {hlo.SortOp: _sort}
"""What each operation gives for its operands."""
