"""Primitive operators, which decompositions may end in; elementwise ones are their ATen namesakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo import elementwise, powers, reductions, shapes, special_functions
from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Operand, is_float
from vllm_ir.dialects import stablehlo


def _broadcast(b: Builder, value: SSAValue, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> SSAValue:
    return b.broadcast_in(value, shape, broadcast_dimensions)


def _divide(b: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
    if is_float(b.result.element_type):
        return elementwise.divide(b, left, right)
    return b.binary(stablehlo.DivideOp, b.like(left, b.result), b.like(right, b.result))


def _fused_multiply_add(b: Builder, left: Operand, right: Operand, addend: Operand) -> SSAValue:
    """`left * right + addend`, which is rounded twice, as PyTorch's own implementation does it."""
    return elementwise.multiply_add(b, addend, left, right)


def _reshape(b: Builder, value: SSAValue, *_: object) -> SSAValue:
    return b.reshape(value, b.result.get_shape())


def _slice(
    b: Builder,
    value: SSAValue,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> SSAValue:
    return b.slice(value, start_indices, limit_indices, strides)


def _namesakes() -> dict[str, Converter]:
    table: dict[str, Converter] = {}
    for name in (
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "atan2", "bitwise_not", "ceil", "cos", "cosh"),
        *("erf", "erfc", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "hypot", "isfinite", "log", "log10"),
        *("log1p", "log2", "maximum", "minimum", "neg", "reciprocal", "round", "rsqrt", "sign", "signbit", "sin"),
        *("sinh", "sqrt", "tan", "tanh", "trunc"),
    ):
        found = elementwise.CONVERSIONS.get(f"aten.{name}.default")
        table[f"prims.{name}.default"] = found or special_functions.CONVERSIONS[f"aten.{name}.default"]
    for name in (
        *("add", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "fmod", "ge", "gt", "le", "lt", "mul", "ne"),
        *("remainder", "sub"),
    ):
        table[f"prims.{name}.default"] = elementwise.CONVERSIONS[f"aten.{name}.Tensor"]
    return table


CONVERSIONS: Mapping[str, Converter] = {
    **_namesakes(),
    "prims.pow.default": powers.CONVERSIONS["aten.pow.Tensor_Tensor"],
    "prims.where.default": elementwise.CONVERSIONS["aten.where.self"],
    "prims.div.default": _divide,
    "prims.fma.default": _fused_multiply_add,
    "prims.shift_left.default": elementwise.CONVERSIONS["aten.__lshift__.Tensor"],
    "prims.shift_right_arithmetic.default": elementwise.CONVERSIONS["aten.__rshift__.Tensor"],
    "prims.broadcast_in_dim.default": _broadcast,
    "prims.reshape.default": _reshape,
    "prims.collapse.default": _reshape,
    "prims.collapse_view.default": _reshape,
    "prims.split_dim.default": _reshape,
    "prims.squeeze.default": _reshape,
    "prims.slice.default": _slice,
    "prims.cat.default": shapes.CONVERSIONS["aten.cat.default"],
    "prims.rev.default": shapes.CONVERSIONS["aten.flip.default"],
    "prims.amax.default": reductions.CONVERSIONS["aten.amax.default"],
    "prims.amin.default": reductions.CONVERSIONS["aten.amin.default"],
    "prims.sum.default": reductions.CONVERSIONS["aten.sum.dim_IntList"],
    "prims.prod.default": reductions.CONVERSIONS["aten.prod.dim_int"],
}
"""Converters of this family."""
