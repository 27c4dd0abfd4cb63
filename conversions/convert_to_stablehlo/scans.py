"""Cumulative sums and products, by doubling distances: each step adds what is so many places before.

Takes as many operations as the length has bits, all of them plain ones. Sums of floating-point numbers are added in
another order than in PyTorch, and are closer to exact ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, dimension_of
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Number, computation_type, shape
from vllm_ir.conversions.convert_to_stablehlo.shapes import padded
from vllm_ir.dialects import stablehlo


def scan(b: Builder, value: SSAValue, dimension: int, operation: type[Operation], neutral: Number) -> SSAValue:
    """Each element combined with all before it along a dimension."""
    sizes = shape(value)
    distance = 1
    while distance < sizes[dimension]:
        low, high = [0] * len(sizes), [0] * len(sizes)
        low[dimension], high[dimension] = distance, -distance
        value = b.binary(operation, value, padded(b, value, low, high, neutral))
        distance *= 2
    return value


def _cumulative(operation: type[Operation], neutral: Number) -> Converter:
    def convert(b: Builder, value: SSAValue, dim: int, **_: object) -> SSAValue:
        kind = b.result.element_type
        wide = b.convert(value, computation_type(kind))
        if not shape(value):
            return b.convert(wide, kind)
        return b.convert(scan(b, wide, dimension_of(dim, len(shape(value))), operation, neutral), kind)

    return convert


CONVERSIONS: Mapping[str, Converter] = {
    "aten.cumsum.default": _cumulative(stablehlo.AddOp, 0),
    "aten.cumprod.default": _cumulative(stablehlo.MultiplyOp, 1),
}
"""Converters of this family."""
