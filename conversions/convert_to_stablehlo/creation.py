"""Operators that make tensors from sizes and numbers. Memory that `empty` leaves undefined is zeros."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Number, Operand, computation_type, element, shape
from vllm_ir.dialects import stablehlo


def _filled(value: Number) -> Converter:
    def convert(b: Builder, *_args: object, **_keywords: object) -> SSAValue:
        return b.splat(value, b.result)

    return convert


def _full(b: Builder, _size: object, fill_value: Operand, **_: object) -> SSAValue:
    return b.like(fill_value, b.result)


def _new_full(b: Builder, _self: SSAValue, _size: object, fill_value: Operand, **_: object) -> SSAValue:
    return b.like(fill_value, b.result)


def _scalar_tensor(b: Builder, s: Operand, **_: object) -> SSAValue:
    return b.like(s, b.result)


def progression(b: Builder, start: Operand, step: Operand) -> SSAValue:
    """`start + i * step`, in the result's type."""
    kind = b.result.element_type
    wide = b.tensor(b.result.get_shape(), computation_type(kind))
    value = b.iota(wide)
    if isinstance(step, SSAValue) or step != 1:
        value = b.binary(stablehlo.MultiplyOp, value, b.like(step, wide))
    if isinstance(start, SSAValue) or start != 0:
        value = b.binary(stablehlo.AddOp, value, b.like(start, wide))
    return b.convert(value, kind)


def _range(b: Builder, *bounds: Operand, **_: object) -> SSAValue:
    """`arange(end)`, `arange(start, end)` or `arange(start, end, step)`."""
    return progression(b, bounds[0] if len(bounds) > 1 else 0, bounds[2] if len(bounds) > 2 else 1)


def _iota(b: Builder, _length: object, *, start: Operand, step: Operand, **_: object) -> SSAValue:
    return progression(b, start, step)


def _triangle(lower: bool) -> Converter:
    """Elements on one side of a diagonal; zeros on the other."""

    def convert(b: Builder, value: SSAValue, diagonal: int = 0) -> SSAValue:
        if isinstance(diagonal, SSAValue):
            raise Rejected("the number of the diagonal is known only when the program runs")
        sizes = shape(value)
        kept = triangle(b, sizes[-2:], diagonal, lower)
        return b.select(b.broadcast(kept, sizes), value, b.splat(0, b.plain(value.type)))

    return convert


def triangle(b: Builder, sizes: tuple[int, ...], diagonal: int, lower: bool) -> SSAValue:
    """A matrix of booleans: whether an element is on or below (`lower`), or on or above the diagonal."""
    kind = b.tensor(sizes, i32)
    rows, columns = b.iota(kind, 0), b.iota(kind, 1)
    if diagonal:
        rows = b.binary(stablehlo.AddOp, rows, diagonal)
    return b.compare("GE" if lower else "LE", rows, columns)


def _identity(b: Builder, *_sizes: object, **_: object) -> SSAValue:
    kind = b.tensor(b.result.get_shape(), i32)
    return b.convert(b.compare("EQ", b.iota(kind, 0), b.iota(kind, 1)), b.result.element_type)


def _fill(b: Builder, _self: SSAValue, value: Operand) -> SSAValue:
    return b.like(value, b.result)


def _copy(b: Builder, _self: SSAValue, source: SSAValue, _non_blocking: bool = False) -> SSAValue:
    if element(source) == b.result.element_type:
        return b.broadcast(source, b.result.get_shape())
    return b.like(source, b.result)


_ZEROS, _ONES = _filled(0), _filled(1)

CONVERSIONS: Mapping[str, Converter] = {
    **{
        f"aten.{name}": _ZEROS
        for name in (
            *("zeros.default", "zeros_like.default", "new_zeros.default", "zero.default"),
            *("empty.memory_format", "empty_like.default", "empty_strided.default", "empty_permuted.default"),
            *("new_empty.default", "new_empty_strided.default"),
        )
    },
    **{f"aten.{name}": _ONES for name in ("ones.default", "ones_like.default", "new_ones.default")},
    "aten.full.default": _full,
    "aten.full_like.default": _full,
    "aten.new_full.default": _new_full,
    "aten.fill.Scalar": _fill,
    "aten.fill.Tensor": _fill,
    "aten.copy.default": _copy,
    "aten.scalar_tensor.default": _scalar_tensor,
    "aten.arange.default": _range,
    "aten.arange.start": _range,
    "aten.arange.start_step": _range,
    "prims.iota.default": _iota,
    "aten.tril.default": _triangle(True),
    "aten.triu.default": _triangle(False),
    "aten.eye.default": _identity,
    "aten.eye.m": _identity,
}
"""Converters of this family."""
