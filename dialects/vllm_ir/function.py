"""Functions: the signature says what the caller's memory goes through, see `contract.py`.

A function marked `functional` is at tensor level: no call touches buffers, and each window of an argument is written at
most once, at the end, behind everything that computes. A functional function with alias facts (`outputs.py`) is pure:
even the final writes are results, and nothing is a buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, IntegerAttr, StringAttr, UnitAttr
from xdsl.dialects.utils import parse_func_op_like, print_func_op_like
from xdsl.ir import Attribute, Block, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, IsolatedFromAbove, IsTerminator, NoMemoryEffect, Pure, ReturnLike, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.order import verify_order
from vllm_ir.dialects.torch.syntax import ArgumentParser, ArgumentPrinter, verify_arguments
from vllm_ir.dialects.vllm_ir.contract import (
    ALIASES,
    DONATED,
    MUTATED,
    OUTPUT_VIEW,
    RESOURCE,
    STORAGE,
    SYMBOL,
    WINDOW,
    root_of,
    verify_donations,
    verify_functional,
    verify_results,
    verify_signature,
    verify_types,
    verify_writes,
    written_buffers,
)
from vllm_ir.dialects.vllm_ir.outputs import ORIGINAL_OUTPUT_COUNT, output_attributes, verify_outputs, verify_pure

__all__ = [
    "ALIASES",
    "DONATED",
    "MUTATED",
    "ORIGINAL_OUTPUT_COUNT",
    "OUTPUT_VIEW",
    "RESOURCE",
    "STORAGE",
    "SYMBOL",
    "WINDOW",
    "FuncOp",
    "ReturnOp",
    "root_of",
    "written_buffers",
]

_RESERVED = ("sym_name", "function_type", "functional", "arg_attrs", "res_attrs")


@irdl_op_definition
class FuncOp(IRDLOperation):
    """A function over tensors, buffers and integers."""

    name = "vllm_ir.func"

    sym_name = prop_def(StringAttr)
    function_type = prop_def(FunctionType)
    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    res_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    functional = opt_prop_def(UnitAttr)
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface(), NoMemoryEffect())

    @property
    def block(self) -> Block:
        """The only block."""
        return self.body.block

    @property
    def terminator(self) -> ReturnOp:
        """The return at the end."""
        last = self.block.last_op
        if not isinstance(last, ReturnOp):
            raise VerifyException(
                f"@{self.sym_name.data} ends in {last.name if last else 'nothing'}, not vllm_ir.return"
            )
        return last

    @property
    def original_output_count(self) -> int | None:
        """How many outputs the program has, if the function states alias facts; what follows are mutated arguments."""
        count = self.attributes.get(ORIGINAL_OUTPUT_COUNT)
        return cast(IntegerAttr, count).value.data if isinstance(count, IntegerAttr) else None

    @property
    def is_pure(self) -> bool:
        """Whether the function is about tensors only, and states which results are which arguments."""
        return self.functional is not None and ORIGINAL_OUTPUT_COUNT in self.attributes

    @property
    def io_map(self) -> dict[int, int]:
        """Position of each output that is an argument, and the position of the argument."""
        return {
            position: cast(IntegerAttr, given[ALIASES]).value.data
            for position, given in output_attributes(self.result_attributes(), self.terminator)
            if ALIASES in given
        }

    @property
    def output_views(self) -> dict[int, DictionaryAttr]:
        """What is said of outputs that are other windows onto arguments, by position."""
        return {
            position: cast(DictionaryAttr, given[OUTPUT_VIEW])
            for position, given in output_attributes(self.result_attributes(), self.terminator)
            if OUTPUT_VIEW in given
        }

    def result_attributes(self) -> list[dict[str, Attribute]]:
        """Attributes of the results; copies."""
        if self.res_attrs is None:
            return [{} for _ in self.terminator.operands]
        return [dict(entry.data) for entry in self.res_attrs.data]

    def argument_attributes(self, index: int) -> dict[str, Attribute]:
        """Attributes of the argument at `index`; a copy."""
        return dict(self.arg_attrs.data[index].data) if self.arg_attrs else {}

    def set_argument_attributes(self, attributes: list[dict[str, Attribute]]) -> None:
        """Replace the attributes of all arguments."""
        self.properties.pop("arg_attrs", None)
        if any(attributes):
            self.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(entry) for entry in attributes])

    def set_result_attributes(self, attributes: list[dict[str, Attribute]]) -> None:
        """Replace the attributes of all results."""
        self.properties.pop("res_attrs", None)
        if any(attributes):
            self.properties["res_attrs"] = ArrayAttr([DictionaryAttr(entry) for entry in attributes])

    def update_type(self) -> None:
        """Make the function type that of the block's arguments and the terminator's operands."""
        self.properties["function_type"] = FunctionType.from_lists(
            [argument.type for argument in self.block.args], [operand.type for operand in self.terminator.operands]
        )

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        """Parse `functional? @name(arguments) -> (results) attributes? { body }`."""
        functional = parser.parse_optional_keyword("functional") is not None
        name, inputs, outputs, region, extra, arg_attrs, res_attrs = parse_func_op_like(
            parser, reserved_attr_names=_RESERVED
        )
        properties: dict[str, Attribute] = {
            "sym_name": StringAttr(name),
            "function_type": FunctionType.from_lists(inputs, outputs),
        }
        if functional:
            properties["functional"] = UnitAttr()
        if arg_attrs is not None:
            properties["arg_attrs"] = arg_attrs
        if res_attrs is not None:
            properties["res_attrs"] = res_attrs
        if not region.blocks:
            region = Region(Block(arg_types=inputs))
        return cls.create(properties=properties, regions=[region], attributes=dict(extra.data) if extra else {})

    def print(self, printer: Printer) -> None:
        """Print what `parse` reads."""
        if self.functional is not None:
            printer.print_string(" functional")
        print_func_op_like(
            printer,
            self.sym_name,
            self.function_type,
            self.body,
            self.attributes,
            arg_attrs=self.arg_attrs,
            res_attrs=self.res_attrs,
            reserved_attr_names=_RESERVED,
        )

    def verify_(self) -> None:
        """The body agrees with the signature, and with the rules of its level."""
        name = f"@{self.sym_name.data}"
        block, terminator = self.block, self.terminator
        verify_order(self)
        _verify_same_types(f"{name}: argument", block.arg_types, self.function_type.inputs.data)
        _verify_same_types(f"{name}: result", terminator.operand_types, self.function_type.outputs.data)
        arguments = _attribute_list(f"{name}: arg_attrs", self.arg_attrs, len(block.args))
        results = _attribute_list(f"{name}: res_attrs", self.res_attrs, len(terminator.operands))
        verify_types(block)
        verify_signature(block, arguments, pure=self.is_pure)
        verify_writes(block, arguments)
        if (count := self.attributes.get(ORIGINAL_OUTPUT_COUNT)) is not None:
            verify_outputs(count, block, results, arguments)
        else:
            verify_results(terminator, results, arguments)
        if self.is_pure:
            verify_pure(block)
        if self.functional is not None:
            verify_functional(block)
            verify_donations(block)


def _verify_same_types(what: str, actual: Sequence[Attribute], stated: Sequence[Attribute]) -> None:
    if len(actual) != len(stated):
        raise VerifyException(f"{what}s: the body has {len(actual)}, the function's type {len(stated)}")
    for index, (one, other) in enumerate(zip(actual, stated, strict=True)):
        if one != other:
            raise VerifyException(f"{what} {index} has type {one} in the body, {other} in the function's type")


def _attribute_list(
    what: str, attributes: ArrayAttr[DictionaryAttr] | None, count: int
) -> Sequence[Mapping[str, Attribute]]:
    if attributes is None:
        none: Mapping[str, Attribute] = {}
        return [none] * count
    if len(attributes.data) != count:
        raise VerifyException(f"{what} has {len(attributes.data)} entries for {count} values")
    return [entry.data for entry in attributes.data]


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a function. `structure` is what the program returned: a tree over the operands and static values."""

    name = "vllm_ir.return"

    structure = prop_def(Attribute)
    values = var_operand_def()

    traits = traits_def(IsTerminator(), ReturnLike(), Pure(), HasParent(FuncOp))

    def print(self, printer: Printer) -> None:
        """Print `structure : types`."""
        printer.print_string(" ")
        ArgumentPrinter(printer, self.operands).argument(self.structure)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        if self.operands:
            printer.print_string(" : ")
            printer.print_list(self.operands, lambda operand: printer.print_attribute(operand.type))

    @classmethod
    def parse(cls, parser: Parser) -> ReturnOp:
        """Parse what `print` prints."""
        arguments = ArgumentParser(parser)
        structure = arguments.argument()
        attributes = parser.parse_optional_attr_dict_with_keyword(cls.get_irdl_definition().properties)
        position = parser.pos
        types: list[Attribute] = []
        if parser.parse_optional_punctuation(":"):
            types = list(parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type))
        return cls.create(
            operands=arguments.resolve(types, position),
            properties={"structure": structure},
            attributes=attributes.data if attributes else {},
        )

    def verify_(self) -> None:
        """The structure is well-formed and uses every operand."""
        verify_arguments(self, [self.structure])
