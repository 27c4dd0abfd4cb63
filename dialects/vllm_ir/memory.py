"""Operations on memory: `alloc`, `view`, `read`, `write`."""

from __future__ import annotations

from collections.abc import Set

from xdsl.dialects.builtin import DictionaryAttr, SymbolRefAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, Pure
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import operand_text, result_text, value_text
from vllm_ir.dialects.torch.arguments import ArgumentList, OperandAttr
from vllm_ir.dialects.torch.syntax import parse_call, parse_types, print_call, print_types, verify_call
from vllm_ir.dialects.vllm_ir.high_level import verify_element_type
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of, shape_of, shape_text


class ReadEffect(MemoryEffect):
    """The op reads its `buffer` operand."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.READ, op.buffer)} if isinstance(op, ReadOp) else set()


class WriteEffect(MemoryEffect):
    """The op writes its `buffer` operand."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.WRITE, op.buffer)} if isinstance(op, WriteOp) else set()


class AllocEffect(MemoryEffect):
    """The op allocates its result."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.ALLOC, op.results[0])}


def _verify_holds(value: SSAValue, buffer: SSAValue) -> None:
    """`buffer` holds values like `value`: the same shape, element type and device."""
    value_name, buffer_name = value_text(value), value_text(buffer)
    shape, other_shape = shape_of(value.type), shape_of(buffer.type)
    if shape != other_shape:
        raise VerifyException(
            f"{value_name} has shape {shape_text(shape)}, the buffer {buffer_name} {shape_text(other_shape)}"
        )
    verify_element_type(value_name, value.type, f"the buffer {buffer_name}", buffer.type)
    if device_of(value.type) != device_of(buffer.type):
        raise VerifyException(
            f"{value_name} is on {device_of(value.type)}, the buffer {buffer_name} on {device_of(buffer.type)}"
        )


@irdl_op_definition
class AllocOp(IRDLOperation):
    """A new storage, whose window `buffer` starts with the contents `init`."""

    name = "vllm_ir.alloc"

    init = operand_def(TensorType[Attribute])
    buffer = result_def(BufferType)

    traits = traits_def(AllocEffect())
    assembly_format = "$init attr-dict `:` type($init) `->` type($buffer)"

    def verify_(self) -> None:
        """Value and buffer agree in shape, element type and device."""
        _verify_holds(self.init, self.buffer)


@irdl_op_definition
class ReadOp(IRDLOperation):
    """The contents of `buffer` at this point, as a value."""

    name = "vllm_ir.read"

    buffer = operand_def(BufferType)
    result = result_def(TensorType[Attribute])

    traits = traits_def(ReadEffect())
    assembly_format = "$buffer attr-dict `:` type($buffer) `->` type($result)"

    def verify_(self) -> None:
        """Value and buffer agree in shape, element type and device."""
        _verify_holds(self.result, self.buffer)


@irdl_op_definition
class WriteOp(IRDLOperation):
    """Replace the contents of `buffer` by `value`; memory of the storage outside the window stays as it is."""

    name = "vllm_ir.write"

    value = operand_def(TensorType[Attribute])
    buffer = operand_def(BufferType)

    traits = traits_def(WriteEffect())
    assembly_format = "$value `,` $buffer attr-dict `:` type($value) `,` type($buffer)"

    def verify_(self) -> None:
        """Value and buffer agree in shape, element type and device."""
        _verify_holds(self.value, self.buffer)


@irdl_op_definition
class RelayoutOp(IRDLOperation):
    """The same value, with the strides that its type states, for an operator that looks at strides."""

    name = "vllm_ir.relayout"

    value = operand_def(TensorType[Attribute])
    result = result_def(TensorType[Attribute])

    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `:` type($value) `->` type($result)"

    def verify_(self) -> None:
        """Shape and element type stay."""
        _verify_holds(self.value, self.result)


@irdl_op_definition
class ViewOp(IRDLOperation):
    """Windows onto the storage of a buffer, made by the PyTorch view operator `callee`.

    The base is the operand that the first argument refers to; further operands are integers. Operators that give
    several views (`split`, `unbind`) have one result for each.
    """

    name = "vllm_ir.view"

    callee = prop_def(SymbolRefAttr)
    args = prop_def(ArgumentList)
    kwargs = opt_prop_def(DictionaryAttr)
    ins = var_operand_def()
    views = var_result_def(BufferType)

    traits = traits_def(Pure())

    @property
    def base(self) -> SSAValue:
        """The buffer that is viewed."""
        return self.operands[0]

    @property
    def target(self) -> str:
        """Name of the view operator: `aten.select.int`."""
        return self.callee.root_reference.data

    def print(self, printer: Printer) -> None:
        """Print `@callee(arguments) : types`."""
        print_call(printer, self.callee, self.args, self.kwargs, self.operands)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        print_types(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> ViewOp:
        """Parse what `print` prints."""
        callee, args, kwargs, arguments = parse_call(parser)
        attributes = parser.parse_optional_attr_dict_with_keyword(cls.get_irdl_definition().properties)
        operands, results = parse_types(parser, arguments)
        properties: dict[str, Attribute] = {"callee": callee, "args": args}
        if kwargs is not None:
            properties["kwargs"] = kwargs
        return cls.create(
            operands=operands,
            result_types=results,
            properties=properties,
            attributes=attributes.data if attributes else {},
        )

    def verify_(self) -> None:
        """The first argument is the base, a buffer, and every view is on its device."""
        verify_call(self, self.callee, self.args, self.kwargs)
        first = self.args.data[0] if self.args.data else None
        if not isinstance(first, OperandAttr) or first.index.data != 0:
            raise VerifyException(f"the first argument of a view is {first}, not its base, operand 0")
        base = operand_text(self, 0)
        if not isinstance(self.base.type, BufferType):
            raise VerifyException(f"the base {base} has type {self.base.type}, which is not a buffer")
        for index, operand in enumerate(self.operands[1:], 1):
            type_text = str(operand.type)
            if isinstance(operand.type, BufferType | TensorType):
                raise VerifyException(f"{operand_text(self, index)} has type {type_text}, a view has one base")
        device = device_of(self.base.type)
        for index, view in enumerate(self.views):
            if device_of(view.type) != device:
                raise VerifyException(
                    f"{result_text(self, index)} is on {device_of(view.type)}, its base {base} on {device}"
                )
