"""Comparing elements, and choosing among them by what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.elementwise import maximum, minimum, unsigned
from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.values import Array, is_complex, is_float, parts, widened
from vllm_ir.dialects import stablehlo as hlo


def _compare(_frame: Frame, op: hlo.CompareOp, values: Sequence[Array]) -> Array:
    left, right = values
    if op.comparison_type is not None and op.comparison_type.data.value == "TOTALORDER" and is_float(left.dtype):
        left, right = _total_order(left), _total_order(right)
    direction = op.comparison_direction.data.value
    if is_complex(left.dtype) and direction not in ("EQ", "NE"):
        return _lexicographic(direction, left, right)
    return _ordered(direction, widened(left), widened(right))


def _ordered(direction: str, left: Array, right: Array) -> Array:
    match direction:
        case "EQ":
            return left == right
        case "NE":
            return left != right
        case "LT":
            return left < right
        case "LE":
            return left <= right
        case "GT":
            return left > right
        case _:
            return left >= right


def _lexicographic(direction: str, left: Array, right: Array) -> Array:
    """Complex numbers by their real parts, and where these are equal by their imaginary parts."""
    (left_real, left_imaginary), (right_real, right_imaginary) = parts(left), parts(right)
    return np.where(
        left_real == right_real,
        _ordered(direction, left_imaginary, right_imaginary),
        _ordered(direction, left_real, right_real),
    )


def _total_order(value: Array) -> Array:
    """Integers in the order that IEEE 754 gives all floating-point numbers: -NaN, -inf, .., -0, 0, .., inf, NaN."""
    bits = unsigned(value)
    signed = bits.view(np.dtype(f"i{value.itemsize}"))
    return np.where(signed < 0, signed ^ np.array(np.iinfo(signed.dtype).max, signed.dtype), signed)


def _select(_frame: Frame, _op: hlo.SelectOp, values: Sequence[Array]) -> Array:
    return np.where(*values)


def _clamp(frame: Frame, op: hlo.ClampOp, values: Sequence[Array]) -> Array | list[Array]:
    low, value, high = values
    raised = maximum(frame, op, [value, low])
    return minimum(frame, op, [np.asarray(raised), high])


ELEMENTWISE: Mapping[type[Operation], Evaluator] = {
    hlo.ClampOp: _clamp,
    hlo.CompareOp: _compare,
    hlo.SelectOp: _select,
}
"""What each operation gives for its operands, one element like another."""
