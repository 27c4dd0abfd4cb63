"""The call-like syntax that `torch.call`, `vllm_ir.view` and `vllm_ir.return` share.

Argument trees are printed as Python would write them: `@aten.sum.dim_IntList(%x, [1, %n], dtype = bf16)`.

Operands are numbered in order of appearance, and a name that appears again is the same operand. Where that rule does
not give the number that an operand has (one value passed as two operands, operands in another order), its number is
written behind it: `%x as 2`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

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
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import operand_text
from vllm_ir.dialects.torch.arguments import (
    FALSE,
    NONE,
    TRUE,
    ArgumentList,
    NoneArgumentAttr,
    OperandAttr,
    TupleAttr,
    children,
    integer_argument,
    is_static_argument,
    leaves,
)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    text = repr(value)
    if "e" in text and "." not in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}.0e{exponent}"
    return text


class ArgumentPrinter:
    """Prints the argument trees of one operation; operand references become the operands' names."""

    def __init__(self, printer: Printer, operands: Sequence[SSAValue]) -> None:
        self._printer = printer
        self._operands = operands
        self._seen: set[int] = set()
        self._index: dict[SSAValue, int] = {}

    def operand(self, index: int) -> None:
        """Print the operand at `index`."""
        if not 0 <= index < len(self._operands):
            self._printer.print_attribute(OperandAttr(IntAttr(index)))  # invalid, but shown in error messages
            return
        value = self._operands[index]
        self._printer.print_ssa_value(value)
        if index != self._index.get(value, len(self._seen)):
            self._printer.print_string(f" as {index}")
        self._seen.add(index)
        self._index.setdefault(value, index)

    def argument(self, argument: Attribute) -> None:
        """Print an argument tree."""
        printer = self._printer
        match argument:
            case OperandAttr():
                self.operand(argument.index.data)
            case ArrayAttr():
                with printer.in_square_brackets():
                    printer.print_list(children(argument), self.argument)
            case TupleAttr():
                with printer.in_parens():
                    printer.print_list(argument.items.data, self.argument)
            case DictionaryAttr():
                with printer.in_braces():
                    printer.print_list(argument.data.items(), self._entry)
            case NoneArgumentAttr():
                printer.print_string("none")
            case IntegerAttr() if argument.type == i1:
                printer.print_string("true" if argument.value.data else "false")
            case IntegerAttr() if is_static_argument(argument):
                printer.print_string(str(argument.value.data))
            case FloatAttr() if is_static_argument(argument):
                printer.print_string(_float_text(argument.value.data))
            case _:
                printer.print_attribute(argument)

    def _entry(self, entry: tuple[str, Attribute]) -> None:
        self._printer.print_string_literal(entry[0])
        self._printer.print_string(" = ")
        self.argument(entry[1])

    def keyword(self, entry: tuple[str | None, Attribute]) -> None:
        """Print `name = argument`, or the argument alone if there is no name."""
        if entry[0] is not None:
            self._printer.print_string(f"{entry[0]} = ")
        self.argument(entry[1])


def _parse_string(parser: Parser) -> str | None:
    """A string literal. Printing escapes everything outside ASCII, and the lexer takes that for bytes."""
    position = parser.pos
    if (text := parser.parse_optional_str_literal()) is not None:
        return text
    if (data := parser.parse_optional_bytes_literal()) is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        parser.raise_error("string is not valid UTF-8", position)


def _parse_number(parser: Parser) -> Attribute | None:
    position = parser.pos
    negative = parser.parse_optional_punctuation("-") is not None
    if parser.parse_optional_keyword("inf"):
        return FloatAttr(-math.inf if negative else math.inf, f64)
    number = parser.parse_optional_number(allow_boolean=False)
    if number is None:
        if negative:
            parser.raise_error("number expected behind '-'")
        return None
    if isinstance(number, float):
        return FloatAttr(-number if negative else number, f64)
    integer = integer_argument(-number if negative else number)
    if integer is None:
        parser.raise_error(f"integer {'-' * negative}{number} does not fit in 64 bits", position)
    return integer


class ArgumentParser:
    """Parses argument trees and collects the operands in them."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._operands: dict[int, UnresolvedOperand] = {}
        self._index: dict[tuple[str, int], int] = {}

    def operand(self) -> int:
        """Parse an operand; returns its index."""
        return self._number(self._parser.parse_unresolved_operand())

    def _number(self, operand: UnresolvedOperand) -> int:
        parser = self._parser
        key = (operand.operand_name, operand.index)
        index = self._index.get(key, len(self._operands))
        position = parser.pos
        if parser.parse_optional_keyword("as"):
            index = parser.parse_integer(allow_boolean=False, allow_negative=False)
        known = self._operands.setdefault(index, operand)
        if (known.operand_name, known.index) != key:
            parser.raise_error(
                f"operand {index} is %{operand.operand_name} here and %{known.operand_name} before", position
            )
        self._index.setdefault(key, index)
        return index

    def resolve(self, types: Sequence[Attribute], position: int) -> Sequence[SSAValue]:
        """The operands in order, with their types; `position` is that of the types in the text."""
        if sorted(self._operands) != list(range(len(self._operands))):
            self._parser.raise_error(f"operands are numbered {sorted(self._operands)}, with gaps", position)
        operands = [self._operands[index] for index in range(len(self._operands))]
        return self._parser.resolve_operands(operands, types, position)

    def argument(self) -> Attribute:
        """Parse one argument tree."""
        parser = self._parser
        if (operand := parser.parse_optional_unresolved_operand()) is not None:
            return OperandAttr(IntAttr(self._number(operand)))
        if (items := parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, self.argument)) is not None:
            return ArrayAttr(items)
        if (items := parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, self.argument)) is not None:
            return TupleAttr(ArrayAttr(items))
        entries: dict[str, Attribute] = {}
        if (
            parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, lambda: self._entry(entries))
            is not None
        ):
            return DictionaryAttr(entries)
        if (keyword := parser.parse_optional_keyword_in({"none", "true", "false", "nan"})) is not None:
            return {"none": NONE, "true": TRUE, "false": FALSE, "nan": FloatAttr(math.nan, f64)}[keyword]
        if (text := _parse_string(parser)) is not None:
            return StringAttr(text)
        if (number := _parse_number(parser)) is not None:
            return number
        return parser.parse_attribute()

    def _entry(self, entries: dict[str, Attribute]) -> None:
        position = self._parser.pos
        if (key := _parse_string(self._parser)) is None:
            self._parser.raise_error("dictionary key expected, a string")
        if key in entries:
            self._parser.raise_error(f"key {key!r} is given twice", position)
        self._parser.parse_punctuation("=")
        entries[key] = self.argument()


def print_call(
    printer: Printer,
    callee: SymbolRefAttr,
    args: ArgumentList,
    kwargs: DictionaryAttr | None,
    operands: Sequence[SSAValue],
) -> ArgumentPrinter:
    """Print ` @callee(positional, name = keyword)`; returns the printer for what else names the operands."""
    printer.print_string(" ")
    printer.print_attribute(callee)
    arguments = ArgumentPrinter(printer, operands)
    entries: list[tuple[str | None, Attribute]] = [(None, argument) for argument in args.data]
    entries += list(kwargs.data.items()) if kwargs else []
    with printer.in_parens():
        printer.print_list(entries, arguments.keyword)
    return arguments


_KEYWORD = re.compile(r"[A-Za-z_]\w*(?=\s*=)", re.ASCII)


def parse_call(parser: Parser) -> tuple[SymbolRefAttr, ArgumentList, DictionaryAttr | None, ArgumentParser]:
    """Parse what `print_call` prints; the operands are in the returned parser."""
    callee = SymbolRefAttr(parser.parse_symbol_name())
    arguments = ArgumentParser(parser)
    args: list[Attribute] = []
    kwargs: dict[str, Attribute] = {}

    def each() -> None:
        # A keyword and a value such as `bf16` both start with an identifier: look for the `=` behind it.
        if _KEYWORD.match(parser.lexer.input.content, parser.pos):
            position = parser.pos
            name = parser.parse_identifier()
            if name in kwargs:
                parser.raise_error(f"keyword argument {name!r} is given twice", position)
            parser.parse_punctuation("=")
            kwargs[name] = arguments.argument()
        elif kwargs:
            parser.raise_error("a positional argument follows a keyword argument")
        else:
            args.append(arguments.argument())

    parser.parse_comma_separated_list(parser.Delimiter.PAREN, each)
    return callee, ArrayAttr(args), DictionaryAttr(kwargs) if kwargs else None, arguments


def print_types(printer: Printer, op: Operation) -> None:
    """Print ` : (operand types) -> result types`."""
    printer.print_string(" : ")
    printer.print_function_type(op.operand_types, op.result_types)


def parse_types(parser: Parser, arguments: ArgumentParser) -> tuple[Sequence[SSAValue], Sequence[Attribute]]:
    """Parse the types behind a call and resolve its operands with them."""
    position = parser.pos
    parser.parse_punctuation(":")
    function_type = parser.parse_function_type()
    operands = arguments.resolve(function_type.inputs.data, position)
    return operands, function_type.outputs.data


_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def verify_call(op: Operation, callee: SymbolRefAttr, args: ArgumentList, kwargs: DictionaryAttr | None) -> None:
    """The callee is one name, keywords are identifiers, and the arguments are well-formed and use every operand."""
    if callee.nested_references.data:
        raise VerifyException(f"callee {callee} is a nested reference, the name of an operator is one symbol")
    for name in kwargs.data if kwargs else ():
        if not _IDENTIFIER.fullmatch(name):
            raise VerifyException(f"keyword {name!r} is not an identifier")
    verify_arguments(op, [*args.data, *(kwargs.data.values() if kwargs else ())])


def verify_arguments(op: Operation, arguments: Iterable[Attribute]) -> None:
    """Leaves are operands that exist or values of PyTorch, and every operand is among them."""
    used: set[int] = set()
    for leaf in leaves(arguments):
        if not isinstance(leaf, OperandAttr):
            if not is_static_argument(leaf):
                raise VerifyException(f"argument {leaf} is not a value that PyTorch has")
            continue
        index = leaf.index.data
        if not 0 <= index < len(op.operands):
            raise VerifyException(f"an argument refers to operand {index} of {len(op.operands)}")
        used.add(index)
    for index in range(len(op.operands)):
        if index not in used:
            raise VerifyException(f"{operand_text(op, index)} is an operand but not among the arguments")
