"""Functions that StableHLO has no operation for, by formulas and rational approximations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import f64
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Number, Operand, computation_type, element
from vllm_ir.conversions.convert_to_stablehlo.elementwise import in_computation
from vllm_ir.dialects import stablehlo

# erf(x) = x P(x^2) / Q(x^2) for |x| < 3.83 in f32, and for |x| < 1 in f64; erfc(x) = exp(-x^2) P(x) / Q(x) beyond.
_ERF_F32 = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
     -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
     -1.42647390514189e-02),
)  # fmt: skip
_ERF = (
    (9.60497373987051638749, 90.0260197203842689217, 2232.00534594684319226, 7003.32514112805075473,
     55592.3013010394962768),
    (1.0, 33.5617141647503099647, 521.357949780152679795, 4594.32382970980127987, 22629.0000613890934246,
     49267.3942608635921086),
)  # fmt: skip
_ERFC_NEAR = (
    (2.46196981473530512524e-10, 0.564189564831068821977, 7.46321056442269912687, 48.6371970985681366614,
     196.520832956077098242, 526.445194995477358631, 934.528527171957607540, 1027.55188689515710272,
     557.535335369399327526),
    (1.0, 13.2281951154744992508, 86.7072140885989742329, 354.937778887819891062, 975.708501743205489753,
     1823.90916687909736289, 2246.33760818710981792, 1656.66309194161350182, 557.535340817727675546),
)  # fmt: skip
_ERFC_FAR = (
    (0.564189583547755073984, 1.27536670759978104416, 5.01905042251180477414, 6.16021097993053585195,
     7.40974269950448939160, 2.97886665372100240670),
    (1.0, 2.26052863220117276590, 9.39603524938001434673, 12.0489539808096656605, 17.0814450747565897222,
     9.60896809063285878198, 3.36907645100081516050),
)  # fmt: skip


def _polynomial(b: Builder, value: SSAValue, coefficients: Sequence[float]) -> SSAValue:
    result = b.splat(coefficients[0], b.plain(value.type))
    for coefficient in coefficients[1:]:
        result = b.binary(stablehlo.AddOp, b.binary(stablehlo.MultiplyOp, result, value), coefficient)
    return result


def _ratio(b: Builder, value: SSAValue, parts: tuple[Sequence[float], Sequence[float]]) -> SSAValue:
    return b.binary(stablehlo.DivideOp, _polynomial(b, value, parts[0]), _polynomial(b, value, parts[1]))


def error_function(b: Builder, value: SSAValue) -> SSAValue:
    """`erf` of `f32` or `f64` elements."""
    if element(value) == f64:
        inner = _inner_error_function(b, value)
        outer = b.binary(stablehlo.SubtractOp, b.splat(1.0, b.plain(value.type)), _outer_complement(b, value))
        return b.select(b.compare("LT", b.unary(stablehlo.AbsOp, value), 1.0), inner, outer)
    square = b.binary(stablehlo.MultiplyOp, value, value)
    inner = b.binary(stablehlo.MultiplyOp, value, _ratio(b, square, _ERF_F32))
    one_from = 3.832506856900711  # where 1 is the nearest number
    far = b.compare("GE", b.unary(stablehlo.AbsOp, value), one_from)
    return b.select(far, b.unary(stablehlo.SignOp, value), inner)


def _inner_error_function(b: Builder, value: SSAValue) -> SSAValue:
    return b.binary(stablehlo.MultiplyOp, value, _ratio(b, b.binary(stablehlo.MultiplyOp, value, value), _ERF))


def _outer_complement(b: Builder, value: SSAValue) -> SSAValue:
    """`erfc` outside of -1 to 1."""
    size = b.unary(stablehlo.AbsOp, value)
    square = b.unary(stablehlo.NegateOp, b.binary(stablehlo.MultiplyOp, value, value))
    power = b.unary(stablehlo.ExponentialOp, square)
    ratio = b.select(b.compare("LT", size, 8.0), _ratio(b, size, _ERFC_NEAR), _ratio(b, size, _ERFC_FAR))
    result = b.binary(stablehlo.MultiplyOp, power, ratio)
    # The power is 0 far out, where the ratio of infinities is not a number.
    result = b.select(b.compare("EQ", power, 0.0), power, result)
    two = b.splat(2.0, b.plain(value.type))
    return b.select(b.compare("LT", value, 0.0), b.binary(stablehlo.SubtractOp, two, result), result)


def _complement(b: Builder, value: SSAValue) -> SSAValue:
    near = b.binary(stablehlo.SubtractOp, b.splat(1.0, b.plain(value.type)), _inner_error_function(b, value))
    inside = b.compare("LT", b.unary(stablehlo.AbsOp, value), 1.0)
    return b.select(inside, near, _outer_complement(b, value))


def _in_computation(formula: Callable[[Builder, SSAValue], SSAValue]) -> Converter:
    """A formula on the type that the result is computed in."""

    def convert(b: Builder, value: SSAValue) -> SSAValue:
        kind = b.result.element_type
        return b.convert(formula(b, b.convert(value, computation_type(kind))), kind)

    return convert


def _gelu(b: Builder, value: SSAValue, approximate: str = "none") -> SSAValue:
    kind = b.result.element_type
    x = in_computation(b, value, kind)
    multiply, add = stablehlo.MultiplyOp, stablehlo.AddOp
    if approximate == "tanh":
        cube = b.binary(multiply, b.binary(multiply, x, x), x)
        inner = b.binary(multiply, b.binary(add, x, b.binary(multiply, cube, 0.044715)), math.sqrt(2 / math.pi))
        factor = b.binary(add, b.unary(stablehlo.TanhOp, inner), 1.0)
    else:
        factor = b.binary(add, error_function(b, b.binary(multiply, x, math.sqrt(0.5))), 1.0)
    return b.convert(b.binary(multiply, b.binary(multiply, x, 0.5), factor), kind)


def _silu(b: Builder, value: SSAValue) -> SSAValue:
    """`x / (1 + exp(-x))`, the formula of PyTorch's kernel."""
    kind = b.result.element_type
    x = in_computation(b, value, kind)
    power = b.unary(stablehlo.ExponentialOp, b.unary(stablehlo.NegateOp, x))
    return b.convert(b.binary(stablehlo.DivideOp, x, b.binary(stablehlo.AddOp, power, 1.0)), kind)


def _relu(b: Builder, value: SSAValue) -> SSAValue:
    return b.binary(stablehlo.MaximumOp, value, 0)


def _leaky_relu(b: Builder, value: SSAValue, negative_slope: Operand = 0.01) -> SSAValue:
    kind = b.result.element_type
    x = in_computation(b, value, kind)
    scaled = b.binary(stablehlo.MultiplyOp, x, negative_slope)
    return b.convert(b.select(b.compare("GT", x, 0), x, scaled), kind)


def _elu(b: Builder, value: SSAValue, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> SSAValue:
    kind = b.result.element_type
    multiply = stablehlo.MultiplyOp
    x = in_computation(b, value, kind)
    power = b.unary(stablehlo.ExponentialMinusOneOp, b.binary(multiply, x, input_scale))
    negative = b.binary(multiply, power, alpha * scale)
    return b.convert(b.select(b.compare("LT", x, 0), negative, b.binary(multiply, x, scale)), kind)


def _hard_tanh(b: Builder, value: SSAValue, min_val: Number = -1, max_val: Number = 1) -> SSAValue:
    return b.binary(stablehlo.MinimumOp, b.binary(stablehlo.MaximumOp, value, min_val), max_val)


def _power_of_two(b: Builder, x: SSAValue) -> SSAValue:
    return b.binary(stablehlo.PowerOp, b.splat(2.0, b.plain(x.type)), x)


def _logarithm(base: float) -> Converter:
    def formula(b: Builder, x: SSAValue) -> SSAValue:
        return b.binary(stablehlo.MultiplyOp, b.unary(stablehlo.LogOp, x), 1.0 / math.log(base))

    return _in_computation(formula)


def _one(b: Builder, x: SSAValue) -> SSAValue:
    return b.splat(1.0, b.plain(x.type))


def _leg(b: Builder, x: SSAValue) -> SSAValue:
    """`sqrt(1 - x^2)`, without loss where `x` is near 1."""
    below = b.binary(stablehlo.SubtractOp, _one(b, x), x)
    return b.unary(stablehlo.SqrtOp, b.binary(stablehlo.MultiplyOp, below, b.binary(stablehlo.AddOp, x, 1.0)))


def _arc_sine(b: Builder, x: SSAValue) -> SSAValue:
    return b.binary(stablehlo.Atan2Op, x, _leg(b, x))


def _arc_cosine(b: Builder, x: SSAValue) -> SSAValue:
    return b.binary(stablehlo.Atan2Op, _leg(b, x), x)


def _arc_tangent(b: Builder, x: SSAValue) -> SSAValue:
    return b.binary(stablehlo.Atan2Op, x, 1.0)


def _hyperbolic_sine(b: Builder, x: SSAValue) -> SSAValue:
    """From `expm1` near 0; the halves of powers else, so that none overflows before the result does."""
    power = b.unary(stablehlo.ExponentialMinusOneOp, x)
    ratio = b.binary(stablehlo.DivideOp, power, b.binary(stablehlo.AddOp, power, 1.0))
    near = b.binary(stablehlo.MultiplyOp, b.binary(stablehlo.AddOp, power, ratio), 0.5)
    far = b.binary(stablehlo.SubtractOp, _half_power(b, x), _half_power(b, b.unary(stablehlo.NegateOp, x)))
    return b.select(b.compare("LT", b.unary(stablehlo.AbsOp, x), 1.0), near, far)


def _hyperbolic_cosine(b: Builder, x: SSAValue) -> SSAValue:
    return b.binary(stablehlo.AddOp, _half_power(b, x), _half_power(b, b.unary(stablehlo.NegateOp, x)))


def _half_power(b: Builder, x: SSAValue) -> SSAValue:
    """`exp(x) / 2` without overflow."""
    half = b.unary(stablehlo.ExponentialOp, b.binary(stablehlo.MultiplyOp, x, 0.5))
    return b.binary(stablehlo.MultiplyOp, b.binary(stablehlo.MultiplyOp, half, 0.5), half)


def _area_sine(b: Builder, x: SSAValue) -> SSAValue:
    size = b.unary(stablehlo.AbsOp, x)
    square = b.binary(stablehlo.MultiplyOp, size, size)
    root = b.binary(stablehlo.AddOp, b.unary(stablehlo.SqrtOp, b.binary(stablehlo.AddOp, square, 1.0)), 1.0)
    near = b.binary(stablehlo.AddOp, size, b.binary(stablehlo.DivideOp, square, root))
    far = b.binary(stablehlo.AddOp, b.unary(stablehlo.LogOp, size), math.log(2.0))
    value = b.select(b.compare("GT", size, 1e10), far, b.unary(stablehlo.LogPlusOneOp, near))
    negative = b.compare("LT", x, 0.0)
    return b.select(b.compare("EQ", x, 0.0), x, b.select(negative, b.unary(stablehlo.NegateOp, value), value))


def _area_cosine(b: Builder, x: SSAValue) -> SSAValue:
    above = b.binary(stablehlo.SubtractOp, x, 1.0)
    product = b.binary(stablehlo.MultiplyOp, above, b.binary(stablehlo.AddOp, x, 1.0))
    near = b.unary(stablehlo.LogPlusOneOp, b.binary(stablehlo.AddOp, above, b.unary(stablehlo.SqrtOp, product)))
    far = b.binary(stablehlo.AddOp, b.unary(stablehlo.LogOp, x), math.log(2.0))
    return b.select(b.compare("GT", x, 1e10), far, near)


def _area_tangent(b: Builder, x: SSAValue) -> SSAValue:
    minus = b.unary(stablehlo.LogPlusOneOp, b.unary(stablehlo.NegateOp, x))
    return b.binary(
        stablehlo.MultiplyOp, b.binary(stablehlo.SubtractOp, b.unary(stablehlo.LogPlusOneOp, x), minus), 0.5
    )


_FORMULAS: Mapping[str, Callable[[Builder, SSAValue], SSAValue]] = {
    "acos": _arc_cosine,
    "acosh": _area_cosine,
    "asin": _arc_sine,
    "asinh": _area_sine,
    "atan": _arc_tangent,
    "atanh": _area_tangent,
    "cosh": _hyperbolic_cosine,
    "erf": error_function,
    "erfc": _complement,
    "exp2": _power_of_two,
    "sinh": _hyperbolic_sine,
}

CONVERSIONS: Mapping[str, Converter] = {
    **{f"aten.{name}.default": _in_computation(formula) for name, formula in _FORMULAS.items()},
    "aten.log2.default": _logarithm(2.0),
    "aten.log10.default": _logarithm(10.0),
    "aten.gelu.default": _gelu,
    "aten.silu.default": _silu,
    "aten.relu.default": _relu,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.elu.default": _elu,
    "aten.hardtanh.default": _hard_tanh,
}
"""Converters of this family."""
