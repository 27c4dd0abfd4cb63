"""Quotients and remainders with PyTorch's rounding: towards zero, down, and with the sign of the divisor."""

from __future__ import annotations

from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, is_float, is_unsigned
from vllm_ir.dialects import stablehlo


def truncated(b: Builder, value: SSAValue) -> SSAValue:
    """A floating-point value without its fraction; the sign of zero stays."""
    return b.select(b.compare("LT", value, 0.0), b.unary(stablehlo.CeilOp, value), b.unary(stablehlo.FloorOp, value))


def python_remainder(b: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
    """The remainder with the sign of the divisor, as Python's `%`; operands of one type."""
    rest = b.binary(stablehlo.RemainderOp, left, right)
    if is_unsigned(element(left)):
        return rest
    return b.select(_crosses(b, rest, right), b.binary(stablehlo.AddOp, rest, right), rest)


def floor_quotient(b: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
    """The quotient rounded down; operands of one type."""
    if is_float(element(left)):
        return _float_floor_quotient(b, left, right)
    quotient = b.binary(stablehlo.DivideOp, left, right)
    if is_unsigned(element(left)):
        return quotient
    crosses = _crosses(b, b.binary(stablehlo.RemainderOp, left, right), right)
    return b.select(crosses, b.binary(stablehlo.SubtractOp, quotient, 1), quotient)


def _crosses(b: Builder, rest: SSAValue, right: SSAValue) -> SSAValue:
    """Whether the remainder is not zero and has another sign than the divisor."""
    signs = b.compare("NE", b.compare("LT", rest, 0), b.compare("LT", right, 0))
    return b.binary(stablehlo.AndOp, b.compare("NE", rest, 0), signs)


def _float_floor_quotient(b: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
    """As PyTorch computes it: from the remainder, so that rounding of the quotient cannot lead to the next integer."""
    rest = b.binary(stablehlo.RemainderOp, left, right)
    exact = b.binary(stablehlo.DivideOp, b.binary(stablehlo.SubtractOp, left, rest), right)
    exact = b.select(_crosses(b, rest, right), b.binary(stablehlo.SubtractOp, exact, 1), exact)
    down = b.unary(stablehlo.FloorOp, exact)
    short = b.compare("GT", b.binary(stablehlo.SubtractOp, exact, down), 0.5)
    down = b.select(short, b.binary(stablehlo.AddOp, down, 1), down)
    plain = b.binary(stablehlo.DivideOp, left, right)
    # A zero has the sign of the quotient.
    zero = b.binary(stablehlo.MultiplyOp, plain, 0.0)
    zero = b.select(b.compare("EQ", zero, 0.0), zero, 0.0)
    down = b.select(b.compare("EQ", exact, 0.0), zero, down)
    return b.select(b.compare("EQ", right, 0.0), plain, down)
