"""Reading modules from text."""

from __future__ import annotations

import re
import sys

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, LocationAttr, ModuleOp, NameLoc
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Position, Span
from xdsl.utils.mlir_lexer import MLIRLexer

from vllm_ir.dialects.context import make_context
from vllm_ir.dialects.messages import OperationVerifyError

# What xDSL's parser lets through on malformed text, where a parse error was meant.
_PARSER_FAILURES = (VerifyException, ValueError, AssertionError, OverflowError, TypeError, RecursionError)


class _TextLexer(MLIRLexer):
    """xDSL's lexer, but without the backtracking that takes it exponential time on a string that is not closed."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class TextParser(Parser):
    """xDSL's parser, which also remembers where each operation was, and reads strings outside ASCII as strings."""

    def __init__(self, context: Context, text: str, name: str) -> None:
        """A parser of `text`; `name` is the file name in error messages."""
        super().__init__(context, "", name)
        self._parser_state = ParserState(_TextLexer(Input(text, name)))
        self.positions: dict[Operation, Position] = {}

    def parse_operation(self) -> Operation:
        """Parse one operation."""
        position = self.pos
        try:
            operation = super().parse_operation()
        except _PARSER_FAILURES as error:
            self.raise_error(str(error) or type(error).__name__, position)
        self.positions[operation] = position
        return operation

    def parse_optional_str_literal(self) -> str | None:
        """Parse a string literal. The printer escapes everything outside ASCII, and the lexer takes that for bytes."""
        if (text := super().parse_optional_str_literal()) is not None:
            return text
        position = self.pos
        if (data := self.parse_optional_bytes_literal()) is None:
            return None
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.raise_error("string is not valid UTF-8", position)

    def parse_text(self, implicit_module: bool = True) -> ModuleOp:
        """Parse the whole text as a module; `ParseError` for anything that is wrong with it."""
        try:
            return self.parse_module(implicit_module)
        except _PARSER_FAILURES as error:
            self.raise_error(str(error) or type(error).__name__)


def text_context(allow_unregistered: bool = False) -> Context:
    """A context with our dialects, and with the ops that this process has registered with `register_op`."""
    context = make_context(allow_unregistered)
    # Ops can only have been registered if something has loaded the registry, and with it PyTorch.
    if "vllm_ir.frontends.ops" in sys.modules:
        from vllm_ir.frontends.ops import ops
        from vllm_ir.frontends.ops.dialect import operation_class

        context.load_registered_dialect("vllm_ir")
        loaded = set(context.loaded_ops)
        for operation in (operation_class(ops[name]) for name in ops):
            if operation not in loaded:
                context.load_op(operation)
    return context


def parse(text: str, name: str = "<text>") -> ModuleOp:
    """The module that `text` describes, verified; `name` is the file name in error messages.

    Raises:
        ParseError: the text is malformed. The message shows where.
        VerifyException: the text is well-formed, but what it describes is not valid. The message starts with
            `name:line:column`.
    """
    parser = TextParser(text_context(), text, name)
    module = parser.parse_text()
    try:
        module.verify()
    except VerifyException as error:
        where = position_text(failing_operation(error, module), parser)
        raise VerifyException(f"{where or name}: {error}") from error
    return module


def failing_operation(error: VerifyException, module: ModuleOp) -> Operation | None:
    """The operation that `error`, raised when `module` was verified, is about; None if each is valid by itself."""
    if isinstance(error, OperationVerifyError):
        return error.operation
    for operation in module.walk(reverse=True):
        try:
            operation.verify(verify_nested_ops=False)
        except VerifyException:
            return operation
    return None


def position_text(operation: Operation | None, parser: TextParser | None, line_offset: int = 0) -> str:
    """`file:line:column` of `operation` in the parsed text, else in the user's program; empty if neither is known.

    Operations that passes have made are where the operation is that they are in. `line_offset` is the number of lines
    before the parsed text in its file.
    """
    while operation is not None:
        if parser is not None and operation in parser.positions:
            position = parser.positions[operation]
            return str(Span(position, position, parser.lexer.input, line_offset).get_location())
        if where := location_text(operation.location):
            return where
        operation = operation.parent_op()
    return ""


def location_text(location: LocationAttr) -> str:
    """`file:line:column` of a location; empty if it is not known."""
    while isinstance(location, NameLoc) and isinstance(location.location, LocationAttr):
        location = location.location
    if not isinstance(location, FileLineColLoc):
        return ""
    return f"{location.filename.data}:{location.line.data}:{location.column.data}"


def parse_error_text(error: ParseError) -> str:
    """A parse error as one line: `file:line:column: error: message`."""
    return f"{error.span.get_location()}: error: {' '.join(error.msg.split())}"
