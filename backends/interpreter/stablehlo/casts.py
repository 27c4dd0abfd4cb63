"""Numbers in other types: converted, rounded to fewer digits, or their bits read as something else.

Where the specification leaves a result open, it is what XLA gives: integers are cut to the bits of their type, and a
floating-point number outside of an integer type gives the nearest integer that is in it, NaN gives zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.elementwise import unsigned
from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.values import (
    Array,
    Element,
    float_bits,
    is_complex,
    is_float,
    is_integer,
    parts,
    result_element,
    result_type,
    rounded,
    widened,
)
from vllm_ir.dialects import stablehlo as hlo


def _convert(_frame: Frame, op: hlo.ConvertOp, values: Sequence[Array]) -> Array:
    return converted(values[0], result_element(op))


def converted(value: Array, element: Element) -> Array:
    """A value with elements of another type."""
    if element == np.bool_:
        return widened(value) != 0
    if is_complex(value.dtype) and not is_complex(element):
        value = parts(value)[0]
    if is_integer(element):
        return _truncated(widened(value), element) if is_float(value.dtype) else value.astype(element)
    return rounded(value if is_integer(value.dtype) else widened(value), element)


def _truncated(value: Array, element: Element) -> Array:
    """Floating-point numbers without their fractions, bounded by what an integer type can hold."""
    limits = np.iinfo(element)
    whole = np.trunc(value).astype(np.float64)
    # Both limits are powers of two, or one less, so that they are exact if the upper one is left out.
    low, high = whole < limits.min, whole >= float(limits.max) + (0 if limits.bits == 64 else 1)
    inside = np.where(low | high | np.isnan(whole), 0, whole).astype(element)
    return np.where(low, limits.min, np.where(high, limits.max, inside)).astype(element)


def _bitcast(_frame: Frame, op: hlo.BitcastConvertOp, values: Sequence[Array]) -> Array:
    """The same bytes in row-major order: a last dimension appears or goes where the types differ in size."""
    flat = np.ascontiguousarray(values[0]).reshape(-1)
    return flat.view(np.uint8).view(result_element(op)).reshape(result_type(op).get_shape())


def _reduce_precision(_frame: Frame, op: hlo.ReducePrecisionOp, values: Sequence[Array]) -> Array:
    """Numbers as they would be in a type with fewer bits: rounded, infinite if too large, zero if subnormal."""
    (value,) = values
    own_exponent, own_digits = float_bits(value.dtype)
    exponent_bits, digits = op.exponent_bits.value.data, op.mantissa_bits.value.data
    bits = unsigned(value).astype(np.uint64)
    sign = bits & np.uint64(1 << (own_exponent + own_digits))
    size: Array = bits ^ sign
    if (dropped := own_digits - digits) > 0:
        last = (size >> np.uint64(dropped)) & np.uint64(1)
        size = (size + np.uint64((1 << (dropped - 1)) - 1) + last) >> np.uint64(dropped) << np.uint64(dropped)
    if exponent_bits < own_exponent:
        bias, middle = (1 << (exponent_bits - 1)) - 1, (1 << (own_exponent - 1)) - 1
        exponent = size >> np.uint64(own_digits)
        infinity = np.uint64(((1 << own_exponent) - 1) << own_digits)
        size = np.where(exponent > middle + bias, infinity, np.where(exponent <= middle - bias, np.uint64(0), size))
    reduced = (size | sign).astype(unsigned(value).dtype).view(value.dtype)
    return np.where(np.isnan(value), value, reduced)


CASTS: Mapping[type[Operation], Evaluator] = {hlo.BitcastConvertOp: _bitcast}
ELEMENTWISE: Mapping[type[Operation], Evaluator] = {
    hlo.ConvertOp: _convert,
    hlo.ReducePrecisionOp: _reduce_precision,
}
"""Those that give for each element what depends on it alone."""
