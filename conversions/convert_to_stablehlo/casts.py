"""Conversions between element types, and views of the same bits as another.

A floating-point number outside the range of an integer type becomes the nearest that is in range, not a number becomes
0; PyTorch leaves both undefined.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.dtypes import bits_of, element, is_complex, part_of, shape, ui8
from vllm_ir.conversions.convert_to_stablehlo.elementwise import truth
from vllm_ir.dialects import stablehlo


def cast(b: Builder, value: SSAValue, *_: object, **_keywords: object) -> SSAValue:
    """A value with the result's element type."""
    kind = b.result.element_type
    if kind == i1:
        return truth(b, value)
    if is_complex(element(value)) and not is_complex(kind):
        value = b.emit(stablehlo.RealOp, (value,), b.tensor(shape(value), part_of(element(value))))
    return b.convert(value, kind)


def _reinterpret(b: Builder, value: SSAValue, *_: object) -> SSAValue:
    """The bits of the elements as elements of another type; the last dimension shrinks or grows."""
    old, new = element(value), b.result.element_type
    if old == i1:
        value, old = b.convert(value, ui8), ui8
    if is_complex(old) or is_complex(new):
        raise Rejected("a dtype view of complex numbers has no StableHLO form; use view_as_real")
    target = ui8 if new == i1 else new
    result = _bits(b, value, target) if old != target else value
    result = b.reshape(result, b.result.get_shape())
    return b.compare("NE", result, 0) if new == i1 else result


def _bits(b: Builder, value: SSAValue, target: Attribute) -> SSAValue:
    old, sizes = bits_of(element(value)), list(shape(value))
    new = bits_of(target)
    if new > old:
        factor = new // old
        value = b.reshape(value, [*sizes[:-1], sizes[-1] // factor, factor])
        sizes[-1] //= factor
    elif new < old:
        sizes.append(old // new)
    return b.emit(stablehlo.BitcastConvertOp, (value,), b.tensor(sizes, target))


CONVERSIONS: Mapping[str, Converter] = {
    "aten._to_copy.default": cast,
    "prims.convert_element_type.default": cast,
    "aten.view.dtype": _reinterpret,
    "aten.view_copy.dtype": _reinterpret,
    "prims.view_of_dtype.default": _reinterpret,
}
"""Converters of this family."""
