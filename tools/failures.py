"""Errors of `vllm-ir-opt` as one line each: `file:line:column: error: message`."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

from vllm_ir.dialects.messages import OperationVerifyError
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.tools.inputs import InputError
from vllm_ir.tools.text import TextParser, failing_operation, location_text, parse_error_text, position_text

_LOCATED = re.compile(r"(?P<where>\S+:\d+(?::\d+)?): (?P<what>.*)")


def error_line(
    error: Exception, input_name: str, module: ModuleOp | None, parser: TextParser | None, line_offset: int
) -> str:
    """`error` as a line for the user.

    Args:
        error: what was raised.
        input_name: the input file.
        module: what was being processed, if anything.
        parser: what parsed it, if it was text, `line_offset` lines below the beginning of the file.
        line_offset: see there.
    """
    line = _line(error, input_name, module, parser, line_offset)
    # Names of files may hold anything, line breaks and commands for the terminal among it.
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in line)


def _line(
    error: Exception, input_name: str, module: ModuleOp | None, parser: TextParser | None, line_offset: int
) -> str:
    if isinstance(error, ParseError):
        return parse_error_text(error)
    text = _joined(str(error))
    if isinstance(error, VerifyException) and module is not None:
        return _verify_line(error, text, input_name, module, parser, line_offset)
    if isinstance(error, FxImportError) and error.location is not None:
        file, line = error.location
        node = f"cannot import node `{error.node}`: " if error.node else "cannot import: "
        return f"{file}:{line}: error: {node}{_joined(error.reason)}"
    if isinstance(error, InputError):
        return text
    if isinstance(error, DiagnosticException | FxImportError):
        located = _LOCATED.fullmatch(text)
        return f"{located['where']}: error: {located['what']}" if located else f"{input_name}: error: {text}"
    if isinstance(error, UnicodeDecodeError):
        return f"{input_name}: error: not a text file: byte {error.start} is not UTF-8"
    if isinstance(error, RecursionError):
        return f"{input_name}: error: what it holds nests too deep"
    if isinstance(error, MemoryError):
        return f"{input_name}: error: what it asks for does not fit into memory"
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.filename or 'vllm-ir-opt'}: error: {error.strerror.lower()}"
    if isinstance(error, ValueError | ModuleNotFoundError):
        return f"vllm-ir-opt: error: {text}"
    return f"{input_name}: internal error: {type(error).__name__}: {text} (--debug shows the traceback)"


def _verify_line(
    error: VerifyException,
    text: str,
    input_name: str,
    module: ModuleOp,
    parser: TextParser | None,
    line_offset: int,
) -> str:
    operation = failing_operation(error, module)
    where = position_text(operation, parser, line_offset) or input_name
    if operation is None:
        return f"{where}: error: {text}"
    subject = "" if isinstance(error, OperationVerifyError) else f"{operation.name}: "
    program = location_text(operation.location)
    return f"{where}: error: {subject}{text}{f' (from {program})' if program not in ('', where) else ''}"


def _joined(text: str) -> str:
    return " ".join(text.split())
