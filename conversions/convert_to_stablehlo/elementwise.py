"""Elementwise operators: arithmetic, comparisons, logic, bits, selection.

Results are computed in the type that PyTorch's CPU kernels compute in: `f32` for the narrow floating-point types, with
one rounding at the end, else the result's type. Numbers take part in that type and are not rounded before.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import IntegerType, i1
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.division import floor_quotient, python_remainder, truncated
from vllm_ir.conversions.convert_to_stablehlo.dtypes import (
    Operand,
    bits_of,
    computation_type,
    element,
    is_complex,
    is_float,
    is_unsigned,
    promoted,
    shape,
)
from vllm_ir.dialects import stablehlo


def in_computation(b: Builder, value: Operand, result: Attribute) -> SSAValue:
    """An operand in the type and shape that the current result is computed in."""
    return b.like(value, b.tensor(b.result.get_shape(), computation_type(result)))


def _float_unary(operation: type[Operation]) -> Converter:
    def convert(b: Builder, value: SSAValue) -> SSAValue:
        kind = b.result.element_type
        return b.convert(b.unary(operation, b.convert(value, computation_type(kind))), kind)

    return convert


def _rounding(operation: type[Operation]) -> Converter:
    """An operation that leaves integers as they are."""

    def convert(b: Builder, value: SSAValue) -> SSAValue:
        return b.unary(operation, value) if is_float(element(value)) else value

    return convert


def _arithmetic(operation: type[Operation]) -> Converter:
    def convert(b: Builder, left: Operand, right: Operand) -> SSAValue:
        kind = b.result.element_type
        return b.convert(
            b.emit(
                operation,
                (in_computation(b, left, kind), in_computation(b, right, kind)),
                b.tensor(b.result.get_shape(), computation_type(kind)),
            ),
            kind,
        )

    return convert


def _sum(operation: type[Operation]) -> Converter:
    """`left + alpha * right`, or the difference."""

    def convert(b: Builder, left: Operand, right: Operand, alpha: Operand = 1) -> SSAValue:
        kind = b.result.element_type
        second = in_computation(b, right, kind)
        if isinstance(alpha, SSAValue) or alpha != 1:
            second = b.binary(stablehlo.MultiplyOp, second, in_computation(b, alpha, kind))
        return b.convert(b.binary(operation, in_computation(b, left, kind), second), kind)

    return convert


def _rsub(b: Builder, value: Operand, other: Operand, alpha: Operand = 1) -> SSAValue:
    """`other - alpha * value`."""
    kind = b.result.element_type
    subtrahend = in_computation(b, value, kind)
    if isinstance(alpha, SSAValue) or alpha != 1:
        subtrahend = b.binary(stablehlo.MultiplyOp, subtrahend, in_computation(b, alpha, kind))
    return b.convert(b.binary(stablehlo.SubtractOp, in_computation(b, other, kind), subtrahend), kind)


def divide(b: Builder, left: Operand, right: Operand, rounding_mode: str | None = None) -> SSAValue:
    """The quotient; exact, or rounded down (`floor`) or towards zero (`trunc`)."""
    kind = b.result.element_type
    first, second = in_computation(b, left, kind), in_computation(b, right, kind)
    if rounding_mode == "floor":
        return b.convert(floor_quotient(b, first, second), kind)
    quotient = b.binary(stablehlo.DivideOp, first, second)
    if rounding_mode == "trunc" and is_float(kind):
        quotient = truncated(b, quotient)
    return b.convert(quotient, kind)


def _floor_divide(b: Builder, left: Operand, right: Operand) -> SSAValue:
    return divide(b, left, right, "floor")


def _remainder(b: Builder, left: Operand, right: Operand) -> SSAValue:
    kind = b.result.element_type
    return b.convert(python_remainder(b, in_computation(b, left, kind), in_computation(b, right, kind)), kind)


def _compare(direction: str) -> Converter:
    def convert(b: Builder, left: Operand, right: Operand) -> SSAValue:
        kind = b.tensor(b.result.get_shape(), promoted((left, right)))
        return b.compare(direction, b.like(left, kind), b.like(right, kind))

    return convert


def _in_result_type(operation: type[Operation]) -> Converter:
    """An operation that rounds nothing, in the result's own type."""

    def convert(b: Builder, left: Operand, right: Operand) -> SSAValue:
        return b.binary(operation, b.like(left, b.result), b.like(right, b.result))

    return convert


def _shift(left_wards: bool) -> Converter:
    """A shift; by more bits than there are gives 0 (or the sign), as in PyTorch."""

    def convert(b: Builder, value: Operand, count: Operand) -> SSAValue:
        first, second = b.like(value, b.result), b.like(count, b.result)
        if left_wards:
            return b.binary(stablehlo.ShiftLeftOp, first, second)
        logical = is_unsigned(b.result.element_type)
        return b.binary(stablehlo.ShiftRightLogicalOp if logical else stablehlo.ShiftRightArithmeticOp, first, second)

    return convert


def truth(b: Builder, value: SSAValue) -> SSAValue:
    """Whether elements are not zero."""
    return value if element(value) == i1 else b.compare("NE", value, 0)


def _logical(operation: type[Operation]) -> Converter:
    def convert(b: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
        sizes = b.result.get_shape()
        return b.binary(operation, b.broadcast(truth(b, left), sizes), b.broadcast(truth(b, right), sizes))

    return convert


def _logical_not(b: Builder, value: SSAValue) -> SSAValue:
    return b.unary(stablehlo.NotOp, value) if element(value) == i1 else b.compare("EQ", value, 0)


def _number_extreme(direction: str) -> Converter:
    """The larger or smaller of two, ignoring what is not a number."""

    def convert(b: Builder, left: Operand, right: Operand) -> SSAValue:
        first, second = b.like(left, b.result), b.like(right, b.result)
        chosen = b.select(b.compare(direction, first, second), first, second)
        if is_float(b.result.element_type):
            chosen = b.select(b.compare("NE", second, second), first, chosen)
            chosen = b.select(b.compare("NE", first, first), second, chosen)
        return chosen

    return convert


def _clamp(b: Builder, value: SSAValue, min: Operand | None = None, max: Operand | None = None) -> SSAValue:
    value = b.like(value, b.result)
    if min is not None:
        value = b.binary(stablehlo.MaximumOp, value, b.like(min, b.result))
    return value if max is None else b.binary(stablehlo.MinimumOp, value, b.like(max, b.result))


def _clamp_above(b: Builder, value: SSAValue, max: Operand) -> SSAValue:
    return _clamp(b, value, None, max)


def _where(b: Builder, condition: SSAValue, yes: Operand, no: Operand) -> SSAValue:
    chosen = b.broadcast(truth(b, condition), b.result.get_shape())
    return b.select(chosen, b.like(yes, b.result), b.like(no, b.result))


def _masked_fill(b: Builder, value: SSAValue, mask: SSAValue, fill: Operand) -> SSAValue:
    return _where(b, mask, fill, value)


def _is_nan(b: Builder, value: SSAValue) -> SSAValue:
    return b.compare("NE", value, value) if is_float(element(value)) else b.splat(False, b.result)


def _is_infinite(b: Builder, value: SSAValue) -> SSAValue:
    if not is_float(element(value)):
        return b.splat(False, b.result)
    return b.compare("EQ", b.unary(stablehlo.AbsOp, value), float("inf"))


def _is_finite(b: Builder, value: SSAValue) -> SSAValue:
    if not is_float(element(value)):
        return b.splat(True, b.result)
    return b.emit(stablehlo.IsFiniteOp, (value,), b.result)


def _absolute(b: Builder, value: SSAValue) -> SSAValue:
    if element(value) == i1 or is_unsigned(element(value)):
        return value
    return b.emit(stablehlo.AbsOp, (value,), b.result)  # real for complex operands


def _negative(b: Builder, value: SSAValue) -> SSAValue:
    return b.unary(stablehlo.NegateOp, value)


def _sign(b: Builder, value: SSAValue) -> SSAValue:
    """-1, 0 or 1; 0 for what is not a number, as in PyTorch."""
    kind = element(value)
    if kind == i1:
        return value
    if is_unsigned(kind):
        return b.convert(b.compare("NE", value, 0), kind)
    sign = b.unary(stablehlo.SignOp, value)
    if not is_float(kind):
        return sign
    return b.select(b.compare("NE", b.unary(stablehlo.AbsOp, sign), 1.0), b.splat(0.0, b.result), sign)


def _sign_bit(b: Builder, value: SSAValue) -> SSAValue:
    kind = element(value)
    if not is_float(kind):
        return b.splat(False, b.result) if kind == i1 or is_unsigned(kind) else b.compare("LT", value, 0)
    return b.compare("LT", as_integer_bits(b, value), 0)


def as_integer_bits(b: Builder, value: SSAValue) -> SSAValue:
    """The bits of floating-point elements as signed integers."""
    kind = b.tensor(shape(value), IntegerType(bits_of(element(value))))
    return b.emit(stablehlo.BitcastConvertOp, (value,), kind)


def _copy_sign(b: Builder, value: Operand, sign: Operand) -> SSAValue:
    first, second = b.like(value, b.result), b.like(sign, b.result)
    magnitude = b.unary(stablehlo.AbsOp, first)
    negative = b.compare("LT", as_integer_bits(b, second), 0)
    return b.select(negative, b.unary(stablehlo.NegateOp, magnitude), magnitude)


def _reciprocal(b: Builder, value: SSAValue) -> SSAValue:
    kind = b.result.element_type
    one = b.splat(1, b.tensor(shape(value), computation_type(kind)))
    return b.convert(b.binary(stablehlo.DivideOp, one, in_computation(b, value, kind)), kind)


def _truncate(b: Builder, value: SSAValue) -> SSAValue:
    return truncated(b, value) if is_float(element(value)) else value


def _round(b: Builder, value: SSAValue, decimals: int = 0) -> SSAValue:
    if not is_float(element(value)):
        return value
    if decimals == 0:
        return b.unary(stablehlo.RoundNearestEvenOp, value)
    kind = element(value)
    wide = b.convert(value, computation_type(kind))
    up, down = (stablehlo.MultiplyOp, stablehlo.DivideOp)[:: 1 if decimals > 0 else -1]
    scaled = b.unary(stablehlo.RoundNearestEvenOp, b.binary(up, wide, 10.0 ** abs(decimals)))
    return b.convert(b.binary(down, scaled, 10.0 ** abs(decimals)), kind)


def _bitwise_not(b: Builder, value: SSAValue) -> SSAValue:
    return b.unary(stablehlo.NotOp, value)


def _hypotenuse(b: Builder, left: Operand, right: Operand) -> SSAValue:
    """`sqrt(left^2 + right^2)` without overflow: the larger is taken out."""
    kind = b.result.element_type
    sides = [b.unary(stablehlo.AbsOp, in_computation(b, side, kind)) for side in (left, right)]
    large, small = b.binary(stablehlo.MaximumOp, *sides), b.binary(stablehlo.MinimumOp, *sides)
    ratio = b.binary(stablehlo.DivideOp, small, large)
    root = b.unary(stablehlo.SqrtOp, b.binary(stablehlo.AddOp, b.binary(stablehlo.MultiplyOp, ratio, ratio), 1.0))
    value = b.select(b.compare("EQ", small, 0.0), large, b.binary(stablehlo.MultiplyOp, large, root))
    # Infinity, whatever the other side is.
    infinite = [b.compare("EQ", side, float("inf")) for side in sides]
    either = b.binary(stablehlo.OrOp, *infinite)
    return b.convert(b.select(either, b.splat(float("inf"), b.plain(value.type)), value), kind)


def multiply_add(b: Builder, value: Operand, left: Operand, right: Operand, value_scale: Operand = 1) -> SSAValue:
    """`value + scale * left * right`."""
    kind = b.result.element_type
    product = b.binary(stablehlo.MultiplyOp, in_computation(b, left, kind), in_computation(b, right, kind))
    if isinstance(value_scale, SSAValue) or value_scale != 1:
        product = b.binary(stablehlo.MultiplyOp, product, in_computation(b, value_scale, kind))
    return b.convert(b.binary(stablehlo.AddOp, in_computation(b, value, kind), product), kind)


def _addcmul(b: Builder, self: SSAValue, tensor1: SSAValue, tensor2: SSAValue, value: Operand = 1) -> SSAValue:
    return multiply_add(b, self, tensor1, tensor2, value)


def _unless_complex(convert: Converter) -> Converter:
    def checked(b: Builder, *operands: Operand) -> object:
        if any(isinstance(operand, SSAValue) and is_complex(element(operand)) for operand in operands):
            raise Rejected("complex numbers have no order")
        return convert(b, *operands)

    return checked  # pyright: ignore[reportReturnType]  # gives what `convert` gives


def _by_overload(names: Mapping[str, Converter], overloads: tuple[str, ...]) -> dict[str, Converter]:
    return {f"aten.{name}.{overload}": convert for name, convert in names.items() for overload in overloads}


CONVERSIONS: Mapping[str, Converter] = {
    **_by_overload(
        {
            "cos": _float_unary(stablehlo.CosineOp),
            "exp": _float_unary(stablehlo.ExponentialOp),
            "expm1": _float_unary(stablehlo.ExponentialMinusOneOp),
            "log": _float_unary(stablehlo.LogOp),
            "log1p": _float_unary(stablehlo.LogPlusOneOp),
            "rsqrt": _float_unary(stablehlo.RsqrtOp),
            "sigmoid": _float_unary(stablehlo.LogisticOp),
            "sin": _float_unary(stablehlo.SineOp),
            "sqrt": _float_unary(stablehlo.SqrtOp),
            "tan": _float_unary(stablehlo.TanOp),
            "tanh": _float_unary(stablehlo.TanhOp),
            "reciprocal": _reciprocal,
            "abs": _absolute,
            "neg": _negative,
            "ceil": _rounding(stablehlo.CeilOp),
            "floor": _rounding(stablehlo.FloorOp),
            "trunc": _truncate,
            "round": _round,
            "sign": _sign,
            "signbit": _sign_bit,
            "isnan": _is_nan,
            "isinf": _is_infinite,
            "isfinite": _is_finite,
            "logical_not": _logical_not,
            "bitwise_not": _bitwise_not,
            "maximum": _in_result_type(stablehlo.MaximumOp),
            "minimum": _in_result_type(stablehlo.MinimumOp),
            "fmax": _number_extreme("GT"),
            "fmin": _number_extreme("LT"),
            "atan2": _arithmetic(stablehlo.Atan2Op),
            "hypot": _hypotenuse,
            "logical_and": _logical(stablehlo.AndOp),
            "logical_or": _logical(stablehlo.OrOp),
            "logical_xor": _logical(stablehlo.XorOp),
            "floor_divide": _floor_divide,
            "clamp": _clamp,
            "clamp_min": _clamp,
            "clamp_max": _clamp_above,
            "addcmul": _addcmul,
        },
        ("default",),
    ),
    **_by_overload(
        {
            "add": _sum(stablehlo.AddOp),
            "sub": _sum(stablehlo.SubtractOp),
            "rsub": _rsub,
            "mul": _arithmetic(stablehlo.MultiplyOp),
            "div": divide,
            "remainder": _remainder,
            "fmod": _arithmetic(stablehlo.RemainderOp),
            "eq": _compare("EQ"),
            "ne": _compare("NE"),
            "lt": _unless_complex(_compare("LT")),
            "le": _unless_complex(_compare("LE")),
            "gt": _unless_complex(_compare("GT")),
            "ge": _unless_complex(_compare("GE")),
            "bitwise_and": _in_result_type(stablehlo.AndOp),
            "bitwise_or": _in_result_type(stablehlo.OrOp),
            "bitwise_xor": _in_result_type(stablehlo.XorOp),
            "masked_fill": _masked_fill,
            "copysign": _copy_sign,
        },
        ("Tensor", "Scalar"),
    ),
    **_by_overload(
        {"bitwise_left_shift": _shift(True), "bitwise_right_shift": _shift(False)},
        ("Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    ),
    **_by_overload({"__lshift__": _shift(True), "__rshift__": _shift(False)}, ("Tensor", "Scalar")),
    **_by_overload({"div": divide}, ("Tensor_mode", "Scalar_mode")),
    **_by_overload({"clamp": _clamp, "clamp_min": _clamp, "clamp_max": _clamp_above}, ("Tensor",)),
    **_by_overload({"where": _where}, ("self", "ScalarOther", "ScalarSelf", "Scalar")),
    **_by_overload(
        {
            "bitwise_and": _in_result_type(stablehlo.AndOp),
            "bitwise_or": _in_result_type(stablehlo.OrOp),
            "bitwise_xor": _in_result_type(stablehlo.XorOp),
            "remainder": _remainder,
        },
        ("Scalar_Tensor",),
    ),
    "aten.floor_divide.Scalar": _floor_divide,
    "aten.round.decimals": _round,
}
"""Converters of this family."""
