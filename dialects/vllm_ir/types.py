"""Buffers, and what is known about the layout of tensors.

A *buffer* is a strided window onto a storage: element `(i, j)` is at `offset + i * strides[0] + j * strides[1]`, all
in elements. A *tensor* is a value and has no memory; its encoding only records which strides PyTorch's eager mode
would give it, for the calls and returns where a program can observe them.

Dynamic sizes are `?` in the shape. The expression behind each (`s0`, `2*s0 + 1`, as SymPy prints it) is in `sizes`, so
that equal expressions can be compared and the original symbols come back on export.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    ArrayAttr,
    ComplexType,
    IntAttr,
    IntegerType,
    NoneAttr,
    Signedness,
    StringAttr,
    TensorType,
    bf16,
    f8E4M3FN,
    f8E4M3FNUZ,
    f8E5M2,
    f8E5M2FNUZ,
    f8E8M0FNU,
    f16,
    f32,
    f64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.vllm_ir.expressions import verify_size

Dimensions: TypeAlias = ArrayAttr[IntAttr | StringAttr]
"""Integers and symbolic expressions."""

DTYPES: frozenset[Attribute] = frozenset(
    (
        *(IntegerType(width) for width in (1, 8, 16, 32, 64)),
        *(IntegerType(width, Signedness.UNSIGNED) for width in (8, 16, 32, 64)),
        *(f16, bf16, f32, f64),
        *(f8E4M3FN, f8E5M2, f8E4M3FNUZ, f8E5M2FNUZ, f8E8M0FNU),
        *(ComplexType(part) for part in (f16, f32, f64)),
    )
)
"""Element types that tensors of a PyTorch program have; `i1` is `torch.bool`, one byte each."""

_MOST_ELEMENTS = 2**59
"""Elements of the largest type, 16 bytes each, whose bytes PyTorch can count."""
_LAYOUT_FIELDS = ("sizes", "strides", "device")
_BUFFER_FIELDS = ("sizes", "strides", "offset", "device")


def dimensions(values: Sequence[int | str]) -> Dimensions:
    """Integers and expressions as an attribute."""
    return ArrayAttr([IntAttr(value) if isinstance(value, int) else StringAttr(value) for value in values])


def byte_size(dtype: Attribute) -> int:
    """Bytes of one element of type `dtype`."""
    if isinstance(dtype, IntegerType):
        return max(1, cast(IntegerType, dtype).bitwidth // 8)
    if isinstance(dtype, ComplexType):
        return 2 * byte_size(cast(ComplexType[AnyFloat], dtype).element_type)
    if isinstance(dtype, AnyFloat):
        return dtype.bitwidth // 8
    raise VerifyException(f"element type {dtype} is not a dtype of PyTorch")


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of a static shape, in elements; sizes of 0 count as 1, as in PyTorch."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _print_dimension(printer: Printer, value: IntAttr | StringAttr) -> None:
    if isinstance(value, IntAttr):
        printer.print_string(str(value.data))
    else:
        printer.print_attribute(value)


def _parse_dimension(parser: AttrParser) -> IntAttr | StringAttr:
    if (text := parser.parse_optional_str_literal()) is not None:
        return StringAttr(text)
    return IntAttr(parser.parse_integer(allow_boolean=False))


def _print_fields(printer: Printer, fields: Sequence[tuple[str, Attribute]], first: str) -> None:
    separator = first
    for name, value in fields:
        if isinstance(value, NoneAttr):
            continue
        printer.print_string(f"{separator}{name} = ")
        separator = ", "
        if name in ("sizes", "strides"):
            with printer.in_square_brackets():
                printer.print_list(cast(Dimensions, value).data, lambda item: _print_dimension(printer, item))
        elif name == "offset":
            _print_dimension(printer, cast(IntAttr | StringAttr, value))
        else:
            printer.print_attribute(value)


def _parse_field(parser: AttrParser, known: Sequence[str], fields: dict[str, Attribute]) -> None:
    position = parser.pos
    name = parser.parse_identifier(f", one of {', '.join(known)}")
    if name not in known:
        parser.raise_error(f"field {name!r} is unknown; fields are {', '.join(known)}", position)
    if name in fields:
        parser.raise_error(f"field {name!r} is given twice", position)
    parser.parse_punctuation("=")
    if name in ("sizes", "strides"):
        fields[name] = ArrayAttr(
            parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_dimension(parser))
        )
    elif name == "offset":
        fields[name] = _parse_dimension(parser)
    else:
        fields[name] = StringAttr(parser.parse_str_literal())


def _checked(
    parser: AttrParser, position: int, attribute: type[ParametrizedAttribute], parameters: Sequence[Attribute]
) -> Sequence[Attribute]:
    """`parameters`, or an error at `position` in the text if they do not make a valid `attribute`."""
    try:
        attribute.new(parameters)
    except VerifyException as error:
        parser.raise_error(str(error), position)
    return parameters


def _known(value: Dimensions | NoneAttr) -> tuple[int | str, ...] | None:
    return None if isinstance(value, NoneAttr) else tuple(item.data for item in value.data)


def _verify_window(shape: Sequence[int], layout: LayoutAttr | BufferType) -> None:
    """Sizes and strides have an entry for each dimension, sizes are those of the shape, and nothing is negative."""
    for name, known in (("sizes", _known(layout.sizes)), ("strides", _known(layout.strides))):
        if known is None:
            continue
        if len(known) != len(shape):
            raise VerifyException(f"{name} has {len(known)} entries for {len(shape)} dimensions")
        for dimension, entry in enumerate(known):
            if isinstance(entry, int) and entry < 0:
                raise VerifyException(f"{name} of dimension {dimension} is {entry}, which is negative")
            verify_size(entry)
    _verify_extent(shape, _known(layout.strides), layout.offset if isinstance(layout, BufferType) else None)
    for dimension, (size, entry) in enumerate(zip(shape, _known(layout.sizes) or (), strict=False)):
        if isinstance(entry, int) if size == DYNAMIC_INDEX else entry != size:
            size_text = "?" if size == DYNAMIC_INDEX else size
            raise VerifyException(f"sizes of dimension {dimension} is {entry!r}, the shape has {size_text}")


def _verify_extent(
    shape: Sequence[int],
    strides: Sequence[int | str] | None = None,
    offset: IntAttr | StringAttr | NoneAttr | None = None,
) -> None:
    """The window ends where an address can be; what is symbolic is not counted."""
    for size in shape:
        verify_size(size)
    steps = strides if strides is not None else contiguous_strides([max(size, 1) for size in shape])
    first = offset.data if isinstance(offset, IntAttr) else 0
    known = [(size - 1) * step for size, step in zip(shape, steps, strict=True) if isinstance(step, int) and size > 0]
    if (last := first + sum(known)) >= _MOST_ELEMENTS:
        raise VerifyException(
            f"its last element is number {last} of the storage, more than 2**63 bytes behind the first"
        )


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """Encoding of a tensor type: symbolic sizes, strides of eager mode if not contiguous, device if not `cpu`."""

    name = "vllm_ir.layout"

    sizes: Dimensions | NoneAttr
    strides: Dimensions | NoneAttr
    device: StringAttr | NoneAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Parse `<field = value, ..>`."""
        position = parser.pos
        fields: dict[str, Attribute] = {}
        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, lambda: _parse_field(parser, _LAYOUT_FIELDS, fields))
        return _checked(parser, position, cls, [fields.get(name, NoneAttr()) for name in _LAYOUT_FIELDS])

    def print_parameters(self, printer: Printer) -> None:
        """Print `<field = value, ..>`."""
        with printer.in_angle_brackets():
            _print_fields(printer, [("sizes", self.sizes), ("strides", self.strides), ("device", self.device)], "")


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """A strided window onto a storage; absent fields mean contiguous strides, offset 0 and the device `cpu`."""

    name = "vllm_ir.buffer"

    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    sizes: Dimensions | NoneAttr
    strides: Dimensions | NoneAttr
    offset: IntAttr | StringAttr | NoneAttr
    device: StringAttr | NoneAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Parse `<4x?xbf16, field = value, ..>`."""
        fields: dict[str, Attribute] = {}
        position = parser.pos
        with parser.in_angle_brackets():
            shape, element_type = parser.parse_ranked_shape()
            while parser.parse_optional_punctuation(","):
                _parse_field(parser, _BUFFER_FIELDS, fields)
        parameters = [
            ArrayAttr([IntAttr(size) for size in shape]),
            element_type,
            *(fields.get(name, NoneAttr()) for name in _BUFFER_FIELDS),
        ]
        return _checked(parser, position, cls, parameters)

    def print_parameters(self, printer: Printer) -> None:
        """Print `<4x?xbf16, field = value, ..>`."""
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.get_shape())
            if self.shape.data:
                printer.print_string("x")
            printer.print_attribute(self.element_type)
            fields = (
                ("sizes", self.sizes),
                ("strides", self.strides),
                ("offset", self.offset),
                ("device", self.device),
            )
            _print_fields(printer, fields, ", ")

    def get_shape(self) -> tuple[int, ...]:
        """Sizes, `DYNAMIC_INDEX` where dynamic."""
        return tuple(size.data for size in self.shape.data)

    def verify(self) -> None:
        """The element type is a dtype, and the fields describe a window of this shape."""
        if self.element_type not in DTYPES:
            raise VerifyException(f"element type {self.element_type} is not a dtype of PyTorch")
        for dimension, size in enumerate(self.get_shape()):
            if size < 0 and size != DYNAMIC_INDEX:
                raise VerifyException(f"size of dimension {dimension} is {size}, which is negative")
        _verify_window(self.get_shape(), self)
        if isinstance(self.offset, IntAttr) and self.offset.data < 0:
            raise VerifyException(f"offset is {self.offset.data}, which is negative")
        verify_size(offset_of(self))

    @property
    def tensor(self) -> TensorType[Attribute]:
        """Type of the value that the window holds."""
        return _tensor_of(self)


@functools.lru_cache(maxsize=4096)
def _tensor_of(buffer: BufferType) -> TensorType[Attribute]:
    fields = (buffer.sizes, buffer.strides, buffer.device)
    plain = all(isinstance(field, NoneAttr) for field in fields)
    return TensorType(buffer.element_type, buffer.shape, NoneAttr() if plain else LayoutAttr(*fields))


def verify_tensor_type(type: Attribute) -> None:
    """If `type` is a tensor, its element type is a dtype and its encoding, if any, is a layout of its shape.

    Buffers check themselves when they are made; tensors are a builtin type, and cannot.
    """
    if not isinstance(type, TensorType):
        return
    tensor = cast(TensorType[Attribute], type)
    if tensor.element_type not in DTYPES:
        raise VerifyException(f"element type {tensor.element_type} is not a dtype of PyTorch")
    if isinstance(tensor.encoding, LayoutAttr):
        _verify_window(tensor.get_shape(), tensor.encoding)
    elif isinstance(tensor.encoding, NoneAttr):
        _verify_extent(tensor.get_shape())
    else:
        raise VerifyException(f"encoding {tensor.encoding} is not a layout")


def shape_of(type: Attribute) -> tuple[int, ...]:
    """Sizes of a tensor or buffer type, `DYNAMIC_INDEX` where dynamic."""
    if isinstance(type, TensorType | BufferType):
        return type.get_shape()
    raise VerifyException(f"{type} is neither a tensor nor a buffer")


def _layout_of(type: Attribute) -> LayoutAttr | BufferType | None:
    """What records sizes, strides and device of a tensor or buffer type, if anything does."""
    if isinstance(type, BufferType):
        return type
    encoding = type.encoding if isinstance(type, TensorType) else None
    return encoding if isinstance(encoding, LayoutAttr) else None


def sizes_of(type: Attribute) -> tuple[int | str, ...]:
    """Sizes of a tensor or buffer type, with the expressions of dynamic ones (`?` where unknown)."""
    layout = _layout_of(type)
    known = None if layout is None else _known(layout.sizes)
    return known or tuple("?" if size == DYNAMIC_INDEX else size for size in shape_of(type))


def strides_of(type: Attribute) -> tuple[int | str, ...] | None:
    """Strides of a tensor or buffer type, in elements; None for contiguous with dynamic sizes."""
    layout = _layout_of(type)
    known = None if layout is None else _known(layout.strides)
    if known is not None:
        return known
    shape = shape_of(type)
    return None if DYNAMIC_INDEX in shape else contiguous_strides(shape)


def is_symbolic(kind: TensorType[Attribute] | BufferType) -> bool:
    """Whether a size or a stride of a type is no number."""
    return any(isinstance(size, str) for size in (*sizes_of(kind), *(strides_of(kind) or ())))


def offset_of(type: BufferType) -> int | str:
    """Offset of a buffer in its storage, in elements."""
    return 0 if isinstance(type.offset, NoneAttr) else type.offset.data


def device_of(type: Attribute) -> str:
    """Device of a tensor or buffer type."""
    layout = _layout_of(type)
    return "cpu" if layout is None or isinstance(layout.device, NoneAttr) else layout.device.data


def element_type_of(type: Attribute) -> Attribute:
    """Element type of a tensor or buffer type."""
    if isinstance(type, BufferType):
        return type.element_type
    if isinstance(type, TensorType):
        return cast(TensorType[Attribute], type).element_type
    raise VerifyException(f"{type} is neither a tensor nor a buffer")


def shape_text(shape: Sequence[int]) -> str:
    """`4x?x8`, or `scalar` for no dimensions; for messages."""
    return "x".join("?" if size == DYNAMIC_INDEX else str(size) for size in shape) or "scalar"
