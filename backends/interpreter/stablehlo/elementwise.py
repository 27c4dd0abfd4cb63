"""Elementwise operations on numbers and bits.

Each gives the number that is nearest to the exact result, as far as numpy knows it. Arithmetic of types narrower than
`float32` is that of `float32`, rounded once, which is the same: `float32` has more than twice their digits. Functions
(`exp`, `sin`, ...) are computed in `float64` and rounded.

Where the specification leaves a result open, it is what XLA gives: a division of integers by zero gives -1 and its
remainder the dividend; the smallest integer divided by -1 is itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.values import (
    Array,
    doubled,
    is_complex,
    is_float,
    is_integer,
    parts,
    result_element,
    rounded,
    widened,
)
from vllm_ir.dialects import stablehlo as hlo

Function = Callable[..., Any]  # Any: numpy's own functions do not say that they return arrays


def _arithmetic(function: Function) -> Evaluator:
    """A function that numpy computes as exactly as the type allows."""

    def evaluate(_frame: Frame, _op: Operation, values: Sequence[Array]) -> Array:
        return rounded(np.asarray(function(*map(widened, values))), values[0].dtype)

    return evaluate


def _in_float64(function: Function) -> Evaluator:
    """A function of real or complex numbers, computed in `float64` and rounded."""

    def evaluate(_frame: Frame, _op: Operation, values: Sequence[Array]) -> Array:
        return rounded(np.asarray(function(*map(doubled, values))), values[0].dtype)

    return evaluate


# Arithmetic


def _divide(left: Array, right: Array) -> Array:
    if not is_integer(left.dtype):
        return np.divide(left, right)
    quotient = np.floor_divide(left, np.where(right == 0, 1, right))
    # Towards zero, where numpy goes towards minus infinity.
    inexact = (quotient * right != left) & ((left < 0) != (right < 0))
    return np.where(right == 0, np.array(-1).astype(left.dtype), quotient + inexact.astype(left.dtype))


def _remainder(left: Array, right: Array) -> Array:
    if not is_integer(left.dtype):
        return np.fmod(left, right)
    return np.where(right == 0, left, np.fmod(left, np.where(right == 0, 1, right)))


def _power(left: Array, right: Array) -> Array:
    return _integer_power(left, right) if is_integer(left.dtype) else np.power(left, right)


def _integer_power(base: Array, exponent: Array) -> Array:
    """By squaring, modulo the size of the type; of negative exponents, only those of 1 and -1 are not zero."""
    base, exponent = np.broadcast_arrays(base, exponent)
    result, square, left = np.ones_like(base), base.copy(), np.maximum(exponent, 0)
    while left.any():
        result = np.where(left & 1, result * square, result)
        square, left = square * square, left >> 1
    negative = exponent < 0
    odd = (exponent & 1) == 1
    reciprocal = np.where(base == 1, base, np.where((base + 1 == 0) & (base < 0), np.where(odd, base, -base), 0))
    return np.where(negative, reciprocal, result).astype(base.dtype)


def _extreme(choose: Function, sign: int) -> Evaluator:
    """`maximum` (sign 1) or `minimum` (-1): NaN if there is one; zeros and complex numbers have an order, too."""

    def evaluate(_frame: Frame, _op: Operation, values: Sequence[Array]) -> Array:
        return extreme(*values)

    def extreme(left: Array, right: Array) -> Array:
        if is_complex(left.dtype):
            real, imaginary = parts(left - right)
            first = np.where(real == 0, imaginary, real) * sign > 0
            return np.where(first | np.isnan(left), left, right)
        if not is_float(left.dtype):
            return choose(left, right)
        wide = widened(left), widened(right)
        zeros = (wide[0] == 0) & (wide[1] == 0)
        negative = np.signbit(wide[0]) & np.signbit(wide[1]) if sign > 0 else np.signbit(wide[0]) | np.signbit(wide[1])
        zero = np.where(negative, -0.0, 0.0).astype(wide[0].dtype)
        return rounded(np.where(zeros, zero, choose(*wide)), left.dtype)

    return evaluate


maximum, minimum = _extreme(np.maximum, 1), _extreme(np.minimum, -1)


def _abs(_frame: Frame, op: hlo.AbsOp, values: Sequence[Array]) -> Array:
    element = result_element(op)
    return rounded(np.abs(doubled(values[0]) if is_complex(values[0].dtype) else widened(values[0])), element)


def _sign(value: Array) -> Array:
    if is_float(value.dtype):
        return np.where((value == 0) | np.isnan(value), value, np.copysign(np.ones_like(value), value))
    return np.sign(value)


def _round_away(value: Array) -> Array:
    whole = np.trunc(value)
    return np.where(np.abs(value - whole) >= 0.5, whole + np.copysign(np.ones_like(value), value), whole)


def _logistic(value: Array) -> Array:
    small = np.exp(-np.abs(value)) if not is_complex(value.dtype) else np.exp(-value)
    large = 1 / (1 + small)
    return large if is_complex(value.dtype) else np.where(value < 0, small * large, large)


def _real_or_not(real: Function, other: Function) -> Function:
    """A function that numpy has for real numbers only, and what it is for complex ones."""
    return lambda *values: (other if is_complex(values[0].dtype) else real)(*values)


def _cube_root(value: Array) -> Array:
    return np.power(value, 1 / 3)


def _reciprocal_root(value: Array) -> Array:
    return 1 / np.sqrt(value)


def _angle(left: Array, right: Array) -> Array:
    return -1j * np.log((right + 1j * left) / np.sqrt(right * right + left * left))


# Parts of complex numbers


def _complex(_frame: Frame, op: hlo.ComplexOp, values: Sequence[Array]) -> Array:
    real, imaginary = np.broadcast_arrays(*values)
    result = np.empty(real.shape, result_element(op))
    result.real, result.imag = real, imaginary
    return result


def _real(_frame: Frame, _op: hlo.RealOp, values: Sequence[Array]) -> Array:
    return parts(values[0])[0] if is_complex(values[0].dtype) else values[0]


def _imag(_frame: Frame, _op: hlo.ImagOp, values: Sequence[Array]) -> Array:
    return parts(values[0])[1] if is_complex(values[0].dtype) else np.zeros_like(values[0])


def _is_finite(_frame: Frame, _op: hlo.IsFiniteOp, values: Sequence[Array]) -> Array:
    return np.isfinite(widened(values[0]))


# Bits


def unsigned(value: Array) -> Array:
    """The bits of elements as unsigned integers."""
    return value.view(np.dtype(f"u{value.itemsize}"))


def _shift(function: Function, beyond: Callable[[Array], Array]) -> Function:
    """A shift; by amounts that the type has no bits for, read as unsigned, the result is `beyond`."""

    def shift(value: Array, amount: Array) -> Array:
        width = 8 * value.itemsize
        far = unsigned(amount) >= width
        return np.where(far, beyond(value), function(value, np.where(far, 0, amount))).astype(value.dtype)

    return shift


def _zero(value: Array) -> Array:
    return np.zeros_like(value)


def _signs(value: Array) -> Array:
    return (value.view(np.dtype(f"i{value.itemsize}")) >> (8 * value.itemsize - 1)).view(value.dtype)


def _right_arithmetic(value: Array, amount: Array) -> Array:
    kind = np.dtype(f"i{value.itemsize}")
    return (value.view(kind) >> amount.view(kind)).view(value.dtype)


def _right_logical(value: Array, amount: Array) -> Array:
    return (unsigned(value) >> unsigned(amount)).view(value.dtype)


def _ones(value: Array) -> Array:
    return np.bitwise_count(unsigned(value)).astype(value.dtype)


def _leading_zeros(value: Array) -> Array:
    bits, count = unsigned(value), np.full(value.shape, 8 * value.itemsize, value.dtype)
    while bits.any():
        count, bits = count - (bits != 0), bits >> 1
    return count.astype(value.dtype)


ELEMENTWISE: Mapping[type[Operation], Evaluator] = {
    hlo.AbsOp: _abs,
    hlo.AddOp: _arithmetic(np.add),
    hlo.AndOp: _arithmetic(np.bitwise_and),
    hlo.Atan2Op: _in_float64(_real_or_not(np.arctan2, _angle)),
    hlo.CbrtOp: _in_float64(_real_or_not(np.cbrt, _cube_root)),
    hlo.CeilOp: _arithmetic(np.ceil),
    hlo.ComplexOp: _complex,
    hlo.CosineOp: _in_float64(np.cos),
    hlo.CountLeadingZerosOp: _arithmetic(_leading_zeros),
    hlo.DivideOp: _arithmetic(_divide),
    hlo.ExponentialMinusOneOp: _in_float64(np.expm1),
    hlo.ExponentialOp: _in_float64(np.exp),
    hlo.FloorOp: _arithmetic(np.floor),
    hlo.ImagOp: _imag,
    hlo.IsFiniteOp: _is_finite,
    hlo.LogOp: _in_float64(np.log),
    hlo.LogPlusOneOp: _in_float64(np.log1p),
    hlo.LogisticOp: _in_float64(_logistic),
    hlo.MaximumOp: maximum,
    hlo.MinimumOp: minimum,
    hlo.MultiplyOp: _arithmetic(np.multiply),
    hlo.NegateOp: _arithmetic(np.negative),
    hlo.NotOp: _arithmetic(np.invert),
    hlo.OrOp: _arithmetic(np.bitwise_or),
    hlo.PopcntOp: _arithmetic(_ones),
    hlo.PowerOp: _in_float64(_power),
    hlo.RealOp: _real,
    hlo.RemainderOp: _arithmetic(_remainder),
    hlo.RoundNearestAfzOp: _arithmetic(_round_away),
    hlo.RoundNearestEvenOp: _arithmetic(np.rint),
    hlo.RsqrtOp: _in_float64(_reciprocal_root),
    hlo.ShiftLeftOp: _arithmetic(_shift(np.left_shift, _zero)),
    hlo.ShiftRightArithmeticOp: _arithmetic(_shift(_right_arithmetic, _signs)),
    hlo.ShiftRightLogicalOp: _arithmetic(_shift(_right_logical, _zero)),
    hlo.SignOp: _arithmetic(_sign),
    hlo.SineOp: _in_float64(np.sin),
    hlo.SqrtOp: _in_float64(np.sqrt),
    hlo.SubtractOp: _arithmetic(np.subtract),
    hlo.TanOp: _in_float64(np.tan),
    hlo.TanhOp: _in_float64(np.tanh),
    hlo.XorOp: _arithmetic(np.bitwise_xor),
}
"""What each operation gives for its operands, one element like another."""
