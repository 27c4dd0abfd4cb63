"""`torch.call`: one call of a PyTorch operator."""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cache
from typing import TypeAlias

from xdsl.dialects.builtin import I64, DenseArrayBase, DictionaryAttr, SymbolRefAttr, TensorType, UnitAttr, i64
from xdsl.ir import Attribute, Operation
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import operand_text, result_text
from vllm_ir.dialects.torch.arguments import ArgumentList
from vllm_ir.dialects.torch.effects import EXTERNAL_EFFECTS, RANDOM_EFFECTS
from vllm_ir.dialects.torch.syntax import parse_call, parse_types, print_call, print_types, verify_call
from vllm_ir.dialects.vllm_ir.types import BufferType

REASON = "vllm_ir.reason"
"""Attribute of a call that copies a tensor: why the copy is needed."""

IndexArray: TypeAlias = DenseArrayBase[I64]
"""Numbers of operands."""


def index_array(indices: Iterable[int]) -> IndexArray:
    """Numbers of operands as an attribute. The same object each time: making one is slow, and few are different."""
    return _index_array(tuple(indices))


@cache
def _index_array(indices: tuple[int, ...]) -> IndexArray:
    return DenseArrayBase.from_list(i64, indices)


class CallEffects(MemoryEffect):
    """A call reads and writes the buffers that it names, and the resources that it is marked with."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        effects: set[EffectInstance] = set()
        if not isinstance(op, CallOp):
            return effects
        for indices, kind in ((op.read_indices, MemoryEffectKind.READ), (op.write_indices, MemoryEffectKind.WRITE)):
            effects |= {EffectInstance(kind, op.operands[index]) for index in indices}
        if op.random is not None:
            effects |= RANDOM_EFFECTS
        if op.external is not None:
            effects |= EXTERNAL_EFFECTS
        return effects


@irdl_op_definition
class CallOp(IRDLOperation):
    """A call of the PyTorch operator `callee` with arguments bound to its schema.

    `reads` and `writes` are the operands whose buffers the call reads and writes; `returns` gives, for each result, the
    operand whose buffer it is (-1 for a new tensor). `updates` is the value form of writing: the call works as if on
    copies of these operands, and their new values follow its own results.
    """

    name = "torch.call"

    callee = prop_def(SymbolRefAttr)
    args = prop_def(ArgumentList)
    kwargs = opt_prop_def(DictionaryAttr)
    reads = opt_prop_def(DenseArrayBase[I64])
    writes = opt_prop_def(DenseArrayBase[I64])
    returns = opt_prop_def(DenseArrayBase[I64])
    updates = opt_prop_def(DenseArrayBase[I64])
    random = opt_prop_def(UnitAttr)
    external = opt_prop_def(UnitAttr)
    ins = var_operand_def()
    outs = var_result_def()

    traits = traits_def(CallEffects())

    @property
    def target(self) -> str:
        """Name of the operator: `aten.add.Tensor`."""
        return self.callee.root_reference.data

    @property
    def update_indices(self) -> tuple[int, ...]:
        """Operands in `updates`, in order."""
        return () if self.updates is None else self.updates.get_values()

    @property
    def read_indices(self) -> tuple[int, ...]:
        """Operands in `reads`, in order."""
        return () if self.reads is None else self.reads.get_values()

    @property
    def write_indices(self) -> tuple[int, ...]:
        """Operands in `writes`, in order."""
        return () if self.writes is None else self.writes.get_values()

    @property
    def return_indices(self) -> tuple[int, ...]:
        """For each result the operand whose buffer it is, -1 for a tensor."""
        return (-1,) * len(self.results) if self.returns is None else self.returns.get_values()

    def arguments(self) -> list[Attribute]:
        """All argument trees, positional ones first."""
        return [*self.args.data, *(self.kwargs.data.values() if self.kwargs else ())]

    def print(self, printer: Printer) -> None:
        """Print `@callee(arguments) reads(..) writes(..) returns [..] updates [..] : types`."""
        arguments = print_call(printer, self.callee, self.args, self.kwargs, self.operands)
        for keyword, indices in (("reads", self.reads), ("writes", self.writes)):
            if indices is not None:
                printer.print_string(f" {keyword}")
                with printer.in_parens():
                    printer.print_list(indices.get_values(), arguments.operand)
        for keyword, indices in (("returns", self.returns), ("updates", self.updates)):
            if indices is not None:
                printer.print_string(f" {keyword} {list(indices.get_values())}")
        for keyword, flag in (("random", self.random), ("external", self.external)):
            if flag is not None:
                printer.print_string(f" {keyword}")
        printer.print_op_attributes(self.attributes, print_keyword=True)
        print_types(printer, self)

    @classmethod
    def parse(cls, parser: Parser) -> CallOp:
        """Parse what `print` prints."""
        callee, args, kwargs, arguments = parse_call(parser)
        properties: dict[str, Attribute] = {"callee": callee, "args": args}
        if kwargs is not None:
            properties["kwargs"] = kwargs
        for keyword in ("reads", "writes"):
            if parser.parse_optional_keyword(keyword):
                named = parser.parse_comma_separated_list(parser.Delimiter.PAREN, arguments.operand)
                properties[keyword] = index_array(named)
        for keyword in ("returns", "updates"):
            if parser.parse_optional_keyword(keyword):
                numbers = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_index(parser))
                properties[keyword] = index_array(numbers)
        for keyword in ("random", "external"):
            if parser.parse_optional_keyword(keyword):
                properties[keyword] = UnitAttr()
        attributes = parser.parse_optional_attr_dict_with_keyword(cls.get_irdl_definition().properties)
        operands, results = parse_types(parser, arguments)
        return cls.create(
            operands=operands,
            result_types=results,
            properties=properties,
            attributes=attributes.data if attributes else {},
        )

    def verify_(self) -> None:
        """Arguments, effects and results agree with the operands."""
        verify_call(self, self.callee, self.args, self.kwargs)
        for name, indices in (("reads", self.read_indices), ("writes", self.write_indices)):
            self._verify_distinct(name, indices)
            for index in indices:
                if not self._is_buffer(index):
                    raise VerifyException(f"{name} names {self._typed(index)}, which is not a buffer of this call")
        self._verify_updates()
        self._verify_returns()

    def _verify_updates(self) -> None:
        updates = self.update_indices
        self._verify_distinct("updates", updates)
        for index in updates:
            if not 0 <= index < len(self.operands) or not isinstance(self.operands[index].type, TensorType):
                raise VerifyException(f"updates names {self._typed(index)}, which is not a tensor of this call")
        if len(updates) > len(self.results):
            raise VerifyException(f"{len(updates)} updates need as many results, the call has {len(self.results)}")
        for index, result in zip(reversed(updates), reversed(self.results), strict=False):
            if result.type != self.operands[index].type:
                raise VerifyException(
                    f"the new value of {operand_text(self, index)} has type {result.type}, "
                    f"the old one {self.operands[index].type}"
                )

    def _verify_returns(self) -> None:
        returns = self.return_indices
        if len(returns) != len(self.results):
            raise VerifyException(f"returns has {len(returns)} entries for {len(self.results)} results")
        for number, (index, result) in enumerate(zip(returns, self.results, strict=True)):
            is_buffer = isinstance(result.type, BufferType)
            if is_buffer != (index != -1) or (is_buffer and not self._is_buffer(index)):
                raise VerifyException(self._wrong_return(number, index, is_buffer))

    def _wrong_return(self, number: int, index: int, is_buffer: bool) -> str:
        what = f"{result_text(self, number)} of type {self.results[number].type}"
        if not is_buffer:
            return f"{what} is no buffer but returned as that of {operand_text(self, index)}"
        whose = "no operand" if index == -1 else f"{self._typed(index)}, which is not a buffer"
        return f"{what} is a buffer but returned as that of {whose}"

    def _is_buffer(self, index: int) -> bool:
        return 0 <= index < len(self.operands) and isinstance(self.operands[index].type, BufferType)

    def _typed(self, index: int) -> str:
        type_text = f" of type {self.operands[index].type}" if 0 <= index < len(self.operands) else ""
        return f"{operand_text(self, index)}{type_text}"

    def _verify_distinct(self, name: str, indices: tuple[int, ...]) -> None:
        for number, index in enumerate(indices):
            if index in indices[:number]:
                raise VerifyException(f"{name} names {operand_text(self, index)} twice")


def _parse_index(parser: Parser) -> int:
    position = parser.pos
    index = parser.parse_integer(allow_boolean=False)
    if not -1 <= index < 2**31:
        parser.raise_error(f"{index} is not the number of an operand", position)
    return index
