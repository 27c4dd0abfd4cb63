"""Complex numbers: between pairs of reals and complex elements, and their parts.

Arithmetic on them is that of `elementwise.py`; not every accelerator has complex types.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, is_complex, part_of, shape
from vllm_ir.conversions.convert_to_stablehlo.shapes import cut
from vllm_ir.dialects import stablehlo


def joined(b: Builder, real: SSAValue, imaginary: SSAValue) -> SSAValue:
    """Complex numbers of the result's type from their parts."""
    return b.emit(stablehlo.ComplexOp, (real, imaginary), b.result)


def part(b: Builder, value: SSAValue, imaginary: bool) -> SSAValue:
    """The real or imaginary parts of complex numbers."""
    kind = b.tensor(shape(value), part_of(element(value)))
    return b.emit(stablehlo.ImagOp if imaginary else stablehlo.RealOp, (value,), kind)


def _as_complex(b: Builder, value: SSAValue) -> SSAValue:
    last = len(shape(value)) - 1
    sizes = b.result.get_shape()
    return joined(b, *(b.reshape(cut(b, value, last, index, index + 1), sizes) for index in (0, 1)))


def _as_real(b: Builder, value: SSAValue) -> SSAValue:
    sizes = (*shape(value), 1)
    parts = [b.reshape(part(b, value, imaginary), sizes) for imaginary in (False, True)]
    return b.concatenate(parts, len(sizes) - 1)


def _complex(b: Builder, real: SSAValue, imaginary: SSAValue) -> SSAValue:
    kind = b.tensor(b.result.get_shape(), part_of(b.result.element_type))
    return joined(b, b.like(real, kind), b.like(imaginary, kind))


def _polar(b: Builder, size: SSAValue, angle: SSAValue) -> SSAValue:
    kind = b.tensor(b.result.get_shape(), part_of(b.result.element_type))
    size, angle = b.like(size, kind), b.like(angle, kind)
    sides = [b.unary(operation, angle) for operation in (stablehlo.CosineOp, stablehlo.SineOp)]
    return joined(b, *(b.binary(stablehlo.MultiplyOp, size, side) for side in sides))


def _real(b: Builder, value: SSAValue) -> SSAValue:
    return part(b, value, False) if is_complex(element(value)) else value


def _imaginary(b: Builder, value: SSAValue) -> SSAValue:
    return part(b, value, True)


def _conjugate(b: Builder, value: SSAValue) -> SSAValue:
    if not is_complex(element(value)):
        return value
    return joined(b, part(b, value, False), b.unary(stablehlo.NegateOp, part(b, value, True)))


def _negative(b: Builder, value: SSAValue) -> SSAValue:
    return b.unary(stablehlo.NegateOp, value)


CONVERSIONS: Mapping[str, Converter] = {
    "aten.view_as_complex.default": _as_complex,
    "aten.view_as_complex_copy.default": _as_complex,
    "aten.view_as_real.default": _as_real,
    "aten.view_as_real_copy.default": _as_real,
    "aten.complex.default": _complex,
    "aten.polar.default": _polar,
    "aten.real.default": _real,
    "aten.imag.default": _imaginary,
    "aten._conj.default": _conjugate,
    "aten._conj_copy.default": _conjugate,
    "aten.conj_physical.default": _conjugate,
    "aten._neg_view.default": _negative,
    "aten._neg_view_copy.default": _negative,
    "prims.real.default": _real,
    "prims.imag.default": _imaginary,
    "prims.conj.default": _conjugate,
    "prims.conj_physical.default": _conjugate,
}
"""Converters of this family."""
