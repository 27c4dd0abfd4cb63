"""Reading modules from text."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Iterator, Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, LocationAttr, ModuleOp, NameLoc
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.traits import IsolatedFromAbove
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Position, Span
from xdsl.utils.mlir_lexer import MLIRLexer

from vllm_ir.dialects.context import DIALECTS
from vllm_ir.dialects.messages import OperationVerifyError
from vllm_ir.dialects.order import verify_order
from vllm_ir.tools.dense_elements import DenseElement
from vllm_ir.tools.text_limits import MOST_ELEMENTS, AliasSizes, verify_text


class _TextLexer(MLIRLexer):
    """xDSL's lexer, but without the backtracking that takes it exponential time on a string that is not closed."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class TextParser(Parser):
    """xDSL's parser, which also remembers where each operation was, and reads strings outside ASCII as strings."""

    _TensorLiteralElement = DenseElement

    def __init__(self, context: Context, text: str, name: str) -> None:
        """A parser of `text`; `name` is the file name in error messages. `ParseError` if the text begins wrong."""
        super().__init__(context, "", name)
        source = Input(text, name)
        verify_text(source)
        self._parser_state = ParserState(_TextLexer(source))
        self.positions: dict[Operation, Position] = {}
        self._sizes = AliasSizes()

    def parse_operation(self) -> Operation:
        """Parse one operation."""
        position = self.pos
        try:
            operation = super().parse_operation()
        except ParseError:
            raise
        except Exception as error:  # noqa: BLE001  # xDSL's parser lets all kinds through on malformed text
            self.raise_error(_failure_text(error), position)
        self.positions[operation] = position
        return operation

    def _parse_dense_literal_type(self):  # its type is inferred: xDSL gives it none that can be named here
        position = self.pos
        kind = super()._parse_dense_literal_type()
        if (count := math.prod(kind.get_shape())) > MOST_ELEMENTS:
            self.raise_error(f"a dense attribute of {count} elements, more than {MOST_ELEMENTS}", position)
        return kind

    def _parse_alias_def(self) -> None:
        position = self.pos
        super()._parse_alias_def()
        if (excess := self._sizes.excess(next(reversed(self.attribute_aliases.values())))) is not None:
            self.raise_error(excess, position)

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
            module = self.parse_module(implicit_module)
            for operation in module.walk():
                if operation.has_trait(IsolatedFromAbove):
                    verify_order(operation)
            self._verify_symbols(module)
        except ParseError:
            raise
        except OperationVerifyError as error:
            self.raise_error(str(error), self.positions.get(error.operation))
        except Exception as error:  # noqa: BLE001  # see above
            self.raise_error(_failure_text(error))
        return module

    def _verify_symbols(self, module: ModuleOp) -> None:
        """No two functions have one name. xDSL says so of the module, which has no place in the text."""
        seen: set[Attribute] = set()
        for operation in module.body.block.ops:
            name = operation.get_attr_or_prop("sym_name")
            if name is not None and name in seen:
                self.raise_error(f"redefinition of symbol {name}", self.positions.get(operation))
            if name is not None:
                seen.add(name)


def _failure_text(error: Exception) -> str:
    """What to say of an exception of xDSL's parser; of those that were not meant as a message, also the kind."""
    meant = isinstance(error, VerifyException | ValueError) and str(error)
    return str(error) if meant else f"malformed text ({type(error).__name__}: {error})"


class _TextContext(Context):
    """A context that knows all ops that are registered with `register_op`.

    Those that nothing in this process has registered yet are looked for when a text names an op that is not known,
    since that loads PyTorch.
    """

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        """The class of an operation; `ValueError` if a package that registers ops cannot be loaded."""
        if name.startswith("vllm_ir.") and self._get_known_op(name) is None:
            try:
                importlib.import_module("vllm_ir.tools.providers")
            except RuntimeError as error:
                raise ValueError(str(error)) from error
            self.load_registered_ops()
        return super().get_optional_op(name, dialect_stack=dialect_stack)

    def load_registered_ops(self) -> None:
        """Take in what has been registered."""
        from vllm_ir.frontends.ops import ops
        from vllm_ir.frontends.ops.dialect import operation_class

        self.get_optional_dialect("vllm_ir")  # loads it, if nothing has
        loaded = set(self.loaded_ops)
        for operation in (operation_class(ops[name]) for name in ops):
            if operation not in loaded:
                self.load_op(operation)


def text_context(allow_unregistered: bool = False) -> Context:
    """A context with our dialects, and with the ops that are registered with `register_op`."""
    context = _TextContext(allow_unregistered)
    for name, factory in DIALECTS.items():
        context.register_dialect(name, factory)
    # Ops can only have been registered if something has loaded the registry, and with it PyTorch.
    if "vllm_ir.frontends.ops" in sys.modules:
        context.load_registered_ops()
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
    for operation in _innermost_first(module):
        try:
            operation.verify()
        except VerifyException:
            return operation
    return None


def _innermost_first(operation: Operation) -> Iterator[Operation]:
    """The operation and all in it, in the order in which they are verified."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.ops:
                yield from _innermost_first(inner)
    yield operation


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


class TextError(Exception):
    """A module does not print as it was parsed."""


def reread(module: ModuleOp) -> ModuleOp:
    """The module from its text. Raises `TextError` if it prints as another text then."""
    text = str(module)
    parsed = parse(text)
    if str(parsed) != text:
        raise TextError("the text of the module is not that of the module which is parsed from it")
    return parsed
