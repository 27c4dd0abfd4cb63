"""Arguments of FX nodes as attributes of the IR, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, cast

import torch
from torch._ops import HigherOrderOperator
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    f64,
    i1,
)
from xdsl.ir import Attribute, TypeAttribute

from vllm_ir.dialects.torch.arguments import (
    FALSE,
    NONE,
    TRUE,
    ComplexAttr,
    DeviceAttr,
    LayoutFormatAttr,
    MemoryFormatAttr,
    NoneArgumentAttr,
    OperandAttr,
    TupleAttr,
    integer_argument,
)
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.schemas import target_name
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import dtype_of, element_type

_OPERANDS: list[OperandAttr] = [OperandAttr(IntAttr(index)) for index in range(64)]
_INTEGERS: dict[int, IntegerAttr] = {}


def operand_reference(index: int) -> OperandAttr:
    """Reference to operand `index`, interned."""
    while index >= len(_OPERANDS):
        _OPERANDS.append(OperandAttr(IntAttr(len(_OPERANDS))))
    return _OPERANDS[index]


def integer(value: int) -> IntegerAttr:
    """A Python integer, interned if small."""
    if (found := _INTEGERS.get(value)) is None:
        found = integer_argument(value)
        if found is None:
            raise FxImportError(f"integer {value} does not fit in 64 bits")
        if -1024 <= value <= 65536:
            _INTEGERS[value] = found
    return found


def encode_text(text: str) -> StringAttr:
    """A Python string, escaped to printable ASCII."""
    return StringAttr(text.encode("unicode_escape").decode("ascii"))


def decode_text(text: StringAttr) -> str:
    """What `encode_text` encoded; `FxImportError` for any other text."""
    try:
        return text.data.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        raise FxImportError(f"string {text} is not Python's: ASCII with escapes") from None


def is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    """Whether `value` is a list or tuple, what operators take and return several values in."""
    return isinstance(value, list | tuple)


_LEAF_TYPES = (bool, float, str, torch.dtype, torch.device)


def encode(value: object, operand: Callable[[object], Attribute | None]) -> Attribute:
    """`value` as an attribute tree. `operand` gives the reference for values that are SSA operands, else None."""
    # By exact type first: `isinstance` on SSA values and mappings, which are abstract classes, costs ten times as much.
    if type(value) is int:
        return integer(value)
    if value is None:
        return NONE
    if type(value) in _LEAF_TYPES:
        return encode_leaf(value)
    if isinstance(value, list | tuple):
        items = ArrayAttr([encode(item, operand) for item in cast("Sequence[object]", value)])
        return TupleAttr(items) if isinstance(value, tuple) and not isinstance(value, torch.Size) else items
    if (reference := operand(value)) is not None:
        return reference
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return DictionaryAttr({str(key): encode(item, operand) for key, item in entries.items()})
    return encode_leaf(value)


def encode_leaf(value: object) -> Attribute:
    """A static Python value as an attribute; `FxImportError` if the IR has no form for it."""
    match value:
        case bool():
            return TRUE if value else FALSE
        case int():
            return integer(int(value))
        case float():
            return FloatAttr(value, f64)
        case str():
            return encode_text(value)
        case complex():
            return ComplexAttr(FloatAttr(value.real, f64), FloatAttr(value.imag, f64))
        case torch.dtype():
            return element_type(value)
        case torch.device():
            return DeviceAttr(StringAttr(str(value)))
        case torch.layout():
            return LayoutFormatAttr(StringAttr(str(value).removeprefix("torch.")))
        case torch.memory_format():
            return MemoryFormatAttr(StringAttr(str(value).removeprefix("torch.")))
        case HigherOrderOperator():
            return SymbolRefAttr(target_name(value))
        case _ if is_overload(value):
            return SymbolRefAttr(target_name(value))
        case _:
            raise FxImportError(f"an argument of type {type(value).__name__} is not supported: {value!r}")


def decode(attribute: Attribute, operands: Sequence[object], symbol: Callable[[str], object]) -> object:
    """The Python value of an attribute tree, with `operands[i]` for references and `symbol(name)` for symbols."""
    match attribute:
        case OperandAttr():
            return operands[attribute.index.data]
        case NoneArgumentAttr():
            return None
        case IntegerAttr():
            return bool(attribute.value.data) if attribute.type == i1 else attribute.value.data
        case FloatAttr():
            return attribute.value.data
        case StringAttr():
            return decode_text(attribute)
        case ArrayAttr():
            return [decode(item, operands, symbol) for item in attribute.data]
        case TupleAttr():
            return tuple(decode(item, operands, symbol) for item in attribute.items.data)
        case DictionaryAttr():
            return {key: decode(item, operands, symbol) for key, item in attribute.data.items()}
        case SymbolRefAttr():
            return symbol(attribute.root_reference.data)
        case _:
            return _decode_torch(attribute)


def _decode_torch(attribute: Attribute) -> object:
    match attribute:
        case ComplexAttr():
            return complex(attribute.real.value.data, attribute.imag.value.data)
        case DeviceAttr():
            return _device(attribute.device.data)
        case LayoutFormatAttr():
            return _constant_of_torch(attribute.layout.data, torch.layout, "layout")
        case MemoryFormatAttr():
            return _constant_of_torch(attribute.format.data, torch.memory_format, "memory format")
        case TypeAttribute() if (dtype := dtype_of(attribute)) is not None:
            return dtype
        case _:
            raise FxImportError(f"{attribute} is not an argument of a PyTorch operator")


def number(attribute: Attribute) -> int | float | bool:
    """Value of a scalar constant."""
    match attribute:
        case IntegerAttr():
            return bool(attribute.value.data) if attribute.type == i1 else attribute.value.data
        case FloatAttr():
            return attribute.value.data
        case _:
            raise FxImportError(f"{attribute} is not a number")


def _device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise FxImportError(f"{name!r} is not a device: {error_summary(error)}") from error


def _constant_of_torch(name: str, kind: type, what: str) -> object:
    """The constant `torch.<name>`, which has to be of that kind."""
    found: object = getattr(torch, name, None)
    if not isinstance(found, kind):
        raise FxImportError(f"{name!r} is not a {what} of PyTorch")
    return found
