"""Arguments of PyTorch operators as attributes.

An argument is a tree: leaves are static values or references to SSA operands (`#torch.operand<i>`), inner nodes are
lists (`ArrayAttr`), tuples and dictionaries. The call-like syntax of the trees is in `syntax.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    SymbolRefAttr,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

ArgumentList: TypeAlias = ArrayAttr[Attribute]
"""A Python list of arguments."""

ui64 = IntegerType(64, Signedness.UNSIGNED)


@irdl_attr_definition
class OperandAttr(ParametrizedAttribute):
    """Reference to the operand of the enclosing operation at `index`."""

    name = "torch.operand"
    index: IntAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Parse `<index>`."""
        with parser.in_angle_brackets():
            return (IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False)),)

    def print_parameters(self, printer: Printer) -> None:
        """Print `<index>`."""
        with printer.in_angle_brackets():
            printer.print_string(str(self.index.data))


@irdl_attr_definition
class NoneArgumentAttr(ParametrizedAttribute):
    """Python's `None`."""

    name = "torch.none"


@irdl_attr_definition
class TupleAttr(ParametrizedAttribute):
    """A Python tuple of arguments; lists are `ArrayAttr`."""

    name = "torch.tuple"
    items: ArgumentList


@irdl_attr_definition
class ComplexAttr(ParametrizedAttribute):
    """A Python complex number."""

    name = "torch.complex"
    real: FloatAttr[Float64Type]
    imag: FloatAttr[Float64Type]


@irdl_attr_definition
class DeviceAttr(ParametrizedAttribute):
    """A `torch.device`, by its name (`cpu`, `cuda:0`)."""

    name = "torch.device"
    device: StringAttr


@irdl_attr_definition
class LayoutFormatAttr(ParametrizedAttribute):
    """A `torch.layout`, by its name (`strided`)."""

    name = "torch.layout"
    layout: StringAttr


@irdl_attr_definition
class MemoryFormatAttr(ParametrizedAttribute):
    """A `torch.memory_format`, by its name (`channels_last`)."""

    name = "torch.memory_format"
    format: StringAttr


NONE = NoneArgumentAttr()
TRUE = IntegerAttr(1, i1)
FALSE = IntegerAttr(0, i1)


def integer_argument(value: int) -> IntegerAttr[IntegerType] | None:
    """A Python integer as an argument: `i64`, or `ui64` above its range; None if it does not fit in 64 bits."""
    if -(2**63) <= value < 2**63:
        return IntegerAttr(value, i64)
    # A signless 64-bit attribute would turn these into negative numbers.
    return IntegerAttr(value, ui64) if 0 <= value < 2**64 else None


def children(argument: Attribute) -> Iterable[Attribute]:
    """Items of a list or tuple, values of a dictionary; nothing for a leaf."""
    match argument:
        case ArrayAttr():
            return argument.data
        case TupleAttr():
            return argument.items.data
        case DictionaryAttr():
            return argument.data.values()
        case _:
            return ()


def leaves(arguments: Iterable[Attribute]) -> Iterator[Attribute]:
    """Leaves of the argument trees, in order of appearance."""
    for argument in arguments:
        match argument:
            case ArrayAttr() | TupleAttr() | DictionaryAttr():
                yield from leaves(children(argument))
            case _:
                yield argument


def operand_indices(arguments: Iterable[Attribute]) -> Iterator[int]:
    """Indices of the operands that the argument trees refer to, in order of appearance."""
    for leaf in leaves(arguments):
        if isinstance(leaf, OperandAttr):
            yield leaf.index.data


def map_operands(argument: Attribute, replace: Mapping[int, Attribute]) -> Attribute:
    """The argument tree with operand references replaced by `replace[index]`."""
    match argument:
        case OperandAttr():
            return replace.get(argument.index.data, argument)
        case ArrayAttr():
            return _map_list(argument, replace)
        case TupleAttr():
            return TupleAttr(_map_list(argument.items, replace))
        case DictionaryAttr():
            return DictionaryAttr({key: map_operands(item, replace) for key, item in argument.data.items()})
        case _:
            return argument


def _map_list(items: ArgumentList, replace: Mapping[int, Attribute]) -> ArgumentList:
    return ArrayAttr([map_operands(item, replace) for item in items.data])


def is_static_argument(argument: Attribute) -> bool:
    """Whether `argument` is a leaf without operands that PyTorch code can express."""
    if isinstance(argument, IntegerAttr):
        integer = cast(IntegerAttr[IntegerType], argument)
        return integer.type in (i1, i64) or (integer.type == ui64 and integer.value.data >= 2**63)
    if isinstance(argument, FloatAttr):
        return cast(FloatAttr[Float64Type], argument).type == f64
    return isinstance(
        argument,
        NoneArgumentAttr
        | StringAttr
        | SymbolRefAttr
        | ComplexAttr
        | DeviceAttr
        | LayoutFormatAttr
        | MemoryFormatAttr
        | TypeAttribute,
    )
