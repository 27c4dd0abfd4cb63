"""Powers of floating-point, integer and complex numbers.

Only those of floating-point numbers are one operation. XLA's CPU client takes no more than a few bits of an integer
exponent, and a complex zero to most powers is not a number there, so these are built from what all targets agree on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import bf16, i1
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.complex_numbers import part
from vllm_ir.conversions.convert_to_stablehlo.dtypes import (
    Number,
    Operand,
    bits_of,
    computation_type,
    element,
    is_complex,
    is_float,
    is_integer,
    is_narrow,
    is_unsigned,
    numpy_dtype,
    packed,
)
from vllm_ir.conversions.convert_to_stablehlo.elementwise import in_computation
from vllm_ir.dialects import stablehlo


def _power(b: Builder, base: Operand, exponent: Operand) -> SSAValue:
    kind = b.result.element_type
    if kind == i1:
        raise Rejected("powers of booleans have no StableHLO form; convert the operand to an integer type")
    if isinstance(base, SSAValue) and not isinstance(exponent, SSAValue):
        known = _known_power(b, b.like(base, b.result), exponent)
        if known is not None:
            return known
    first, second = (in_computation(b, _rounded(value, kind), kind) for value in (base, exponent))
    if is_integer(kind):
        return _integer_power(b, first, second)
    power = b.binary(stablehlo.PowerOp, first, second)
    return _with_powers_of_zero(b, first, second, power) if is_complex(kind) else b.convert(power, kind)


def _rounded(value: Operand, kind: Attribute) -> Operand:
    """A number as PyTorch passes it to a power: rounded to the type of the result."""
    if isinstance(value, SSAValue) or not is_narrow(kind):
        return value
    return float(np.frombuffer(packed(value, kind), numpy_dtype(kind)).astype(np.float64)[0])


def _known_power(b: Builder, base: SSAValue, exponent: Number) -> SSAValue | None:
    """The exponents that PyTorch computes by other means than a power; in `bf16`, it rounds each product."""
    kind = element(base)
    if exponent == 0:
        return b.splat(1, b.result)
    if exponent == 1:
        return base
    if is_integer(kind) and isinstance(exponent, int):
        return _squarings(b, base, _checked(exponent, kind))
    wide = b.convert(base, computation_type(kind))
    if exponent in (2, 3):
        return b.convert(_repeated(b, wide, int(exponent.real), kind), kind)
    if not is_float(kind):
        return None
    if exponent in (0.5, -0.5):
        root = b.unary(stablehlo.SqrtOp, wide)
        return b.convert(root if exponent == 0.5 else _inverse(b, root), kind)
    if exponent in (-1, -2):
        return b.convert(_inverse(b, _repeated(b, wide, -int(exponent.real), kind)), kind)
    return None


def _inverse(b: Builder, value: SSAValue) -> SSAValue:
    return b.binary(stablehlo.DivideOp, b.splat(1.0, b.plain(value.type)), value)


def _repeated(b: Builder, base: SSAValue, count: int, kind: Attribute) -> SSAValue:
    result = base
    for _ in range(count - 1):
        result = b.binary(stablehlo.MultiplyOp, result, base)
        if kind == bf16:
            result = b.convert(b.convert(result, bf16), element(base))
    return result


# --- integers ----------------------------------------------------------------------------------------------------


def _checked(exponent: int, kind: Attribute) -> int:
    """A number as the exponent of integers of type `kind`; `Rejected` where eager mode raises an error."""
    if exponent < 0:
        raise Rejected(
            f"the exponent of integers is the negative number {exponent}, an error in eager mode; convert the base to "
            "a floating-point type"
        )
    if exponent.bit_length() > bits_of(kind) - (0 if is_unsigned(kind) else 1):
        raise Rejected(
            f"the exponent {exponent} does not fit into {kind}, an error in eager mode; convert the base to a wider "
            "type"
        )
    return exponent


def _squarings(b: Builder, base: SSAValue, exponent: int) -> SSAValue:
    """Integers to a power of at least 1 that is known: two multiplications or fewer for each bit of it."""
    if exponent == 1:
        return base
    half = _squarings(b, base, exponent >> 1)
    square = b.binary(stablehlo.MultiplyOp, half, half)
    return b.binary(stablehlo.MultiplyOp, square, base) if exponent & 1 else square


def _integer_power(b: Builder, base: SSAValue, exponent: SSAValue) -> SSAValue:
    """Integers to the power of integers of the same type, which wraps around; to a negative one, rounded towards 0.

    Only 1 and -1 have a negative power other than 0, which the lowest bit of the exponent decides; that of 0 is 0.
    """
    kind = b.plain(base.type)
    if is_unsigned(kind.element_type):
        return _by_squaring(b, base, exponent)
    negative = b.compare("LT", exponent, 0)
    lowest = b.binary(stablehlo.AndOp, exponent, 1)
    power = _by_squaring(b, base, b.select(negative, lowest, exponent))
    vanishes = b.binary(stablehlo.AndOp, negative, b.compare("NE", b.unary(stablehlo.AbsOp, base), 1))
    return b.select(vanishes, b.splat(0, kind), power)


def _by_squaring(b: Builder, base: SSAValue, exponent: SSAValue) -> SSAValue:
    """A loop over the bits of the exponents, which are not negative, up to the highest that is set in any."""
    kind = b.plain(base.type)

    def more(left: SSAValue, _square: SSAValue, _result: SSAValue) -> Sequence[SSAValue]:
        bits = b.reduce(left, range(len(kind.get_shape())), stablehlo.OrOp, 0)
        return [b.compare("NE", bits, 0)]

    def step(left: SSAValue, square: SSAValue, result: SSAValue) -> Sequence[SSAValue]:
        odd = b.compare("NE", b.binary(stablehlo.AndOp, left, 1), 0)
        return [
            b.binary(stablehlo.ShiftRightLogicalOp, left, 1),
            b.binary(stablehlo.MultiplyOp, square, square),
            b.select(odd, b.binary(stablehlo.MultiplyOp, result, square), result),
        ]

    kinds = (kind, kind, kind)
    regions = [b.region(kinds, more), b.region(kinds, step)]
    return b.emit_all(stablehlo.WhileOp, (exponent, base, b.splat(1, kind)), kinds, regions=regions)[2]


# --- complex numbers ---------------------------------------------------------------------------------------------


def _with_powers_of_zero(b: Builder, base: SSAValue, exponent: SSAValue, power: SSAValue) -> SSAValue:
    """Complex powers, those of zero as in PyTorch: 0 if the exponent has a positive real part, else not a number."""
    vanishes = b.compare("GT", part(b, exponent, False), 0.0)
    zero = b.splat(0.0, b.plain(power.type))
    powers_of_zero = b.select(vanishes, zero, complex(float("nan"), float("nan")))
    return b.select(b.compare("EQ", base, zero), powers_of_zero, power)


CONVERSIONS: Mapping[str, Converter] = {
    "aten.pow.Tensor_Tensor": _power,
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Scalar": _power,
}
"""Converters of this family."""
