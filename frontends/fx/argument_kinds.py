"""Whether the arguments of a call are of the kinds that the schema of its operator takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    NoneType,
    StringAttr,
    TensorType,
    f64,
    i64,
)
from xdsl.ir import Attribute, TypeAttribute

from vllm_ir.dialects.torch.arguments import (
    ComplexAttr,
    DeviceAttr,
    LayoutFormatAttr,
    MemoryFormatAttr,
    NoneArgumentAttr,
    OperandAttr,
    TupleAttr,
)
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.torch_objects import Overload, schema_of

Fits = Callable[[Attribute], bool]


def argument_types(overload: Overload) -> list[torch.Type]:
    """Kinds of the arguments that a schema takes, symbolic integers among them."""
    arguments = schema_of(overload).arguments
    return [cast("torch.Type", getattr(argument, "real_type", argument.type)) for argument in arguments]


def fits(argument: Attribute, kind: torch.Type, operands: Sequence[Attribute]) -> bool:
    """Whether PyTorch may take an argument tree where a schema asks for `kind`; `operands` are types.

    What a schema says of kinds that no attribute stands for (generators, objects) is not looked at.
    """
    if isinstance(argument, OperandAttr):
        index = argument.index.data
        return _operand_fits(operands[index], kind) if 0 <= index < len(operands) else False
    match kind.kind():
        case "OptionalType":
            return isinstance(argument, NoneArgumentAttr) or fits(argument, _element(kind), operands)
        case "ListType":
            return _list_fits(argument, _element(kind), operands)
        case name:
            return name not in _STATIC or _STATIC[name](argument)


def _element(kind: torch.Type) -> torch.Type:
    return cast("torch.Type", cast("torch.ListType", kind).getElementType())


def _list_fits(argument: Attribute, element: torch.Type, operands: Sequence[Attribute]) -> bool:
    if isinstance(argument, TupleAttr):
        argument = argument.items
    if isinstance(argument, ArrayAttr):
        return all(fits(item, element, operands) for item in cast("ArrayAttr[Attribute]", argument).data)
    return element.kind() in _REPEATED and fits(argument, element, operands)  # a number stands for as many as needed


def _operand_fits(operand: Attribute, kind: torch.Type) -> bool:
    match kind.kind():
        case "OptionalType":
            return isinstance(operand, NoneType) or _operand_fits(operand, _element(kind))
        case "ListType":
            return _element(kind).kind() in _REPEATED and _operand_fits(operand, _element(kind))
        case "TensorType":
            return isinstance(operand, TensorType | BufferType) or _is_number(operand)
        case "NumberType" | "ComplexType" | "FloatType" | "IntType" | "SymIntType" | "BoolType":
            # A tensor with one element passes for a number.
            return isinstance(operand, TensorType | BufferType) or _is_number(operand)
        case name:
            return name not in _STATIC


def _is_number(operand: Attribute) -> bool:
    return isinstance(operand, IntegerType) or operand in (f64, i64)


def _is_integer(argument: Attribute) -> bool:
    return isinstance(argument, IntegerAttr) and argument.value.data < 2**63


def _is_real(argument: Attribute) -> bool:
    return isinstance(argument, IntegerAttr | FloatAttr)


def _is_scalar(argument: Attribute) -> bool:
    return isinstance(argument, IntegerAttr | FloatAttr | ComplexAttr)


_REPEATED = ("IntType", "SymIntType", "FloatType", "BoolType")
_STATIC: Mapping[str, Fits] = {
    "TensorType": lambda argument: _is_scalar(argument) or isinstance(argument, NoneArgumentAttr),
    "IntType": _is_integer,
    "SymIntType": _is_integer,
    "BoolType": _is_integer,
    "FloatType": _is_real,
    "NumberType": _is_scalar,
    "ComplexType": _is_scalar,
    "StringType": lambda argument: isinstance(argument, StringAttr),
    # As the defaults of schemas, these are numbers.
    "ScalarTypeType": lambda argument: isinstance(argument, TypeAttribute | IntegerAttr),
    "LayoutType": lambda argument: isinstance(argument, LayoutFormatAttr | IntegerAttr),
    "MemoryFormatType": lambda argument: isinstance(argument, MemoryFormatAttr | IntegerAttr),
    "DeviceObjType": lambda argument: isinstance(argument, DeviceAttr | StringAttr),
}
"""What an attribute has to be for each kind of a schema."""
