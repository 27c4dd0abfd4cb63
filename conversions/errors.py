"""Stopping a pass at an operation."""

from __future__ import annotations

from typing import NoReturn

from xdsl.dialects.builtin import FileLineColLoc, LocationAttr, NameLoc, UnknownLoc
from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp


def place_of(op: Operation) -> LocationAttr:
    """The location of an operation without the name of the graph's node."""
    location = op.location
    inner = location.location if isinstance(location, NameLoc) else location
    return inner if isinstance(inner, FileLineColLoc | UnknownLoc) else UnknownLoc()


def location_text(op: Operation) -> str:
    """`file:line` of the user's code that made `op`; empty if it is not known."""
    location = place_of(op)
    return f"{location.filename.data}:{location.line.data}" if isinstance(location, FileLineColLoc) else ""


def name_text(op: Operation) -> str:
    """The name of an operation's first result, or what operation it is."""
    name = op.results[0].name_hint if op.results else None
    return f"%{name}" if name else op.name


def named_place(op: Operation) -> str:
    """`file:line: operation %name` of an operation with results, as far as these are known."""
    where, name = location_text(op), op.results[0].name_hint
    return f"{where + ': ' if where else ''}{describe(op)}{f' %{name}' if name else ''}"


def describe(op: Operation) -> str:
    """What the user knows an operation as: the operator that it calls, or its own name."""
    return f"@{op.target}" if isinstance(op, CallOp | ViewOp) else op.name


def fail(op: Operation, reason: str) -> NoReturn:
    """Stop the running pass at `op`: location, operation, reason."""
    where = location_text(op)
    raise PassFailedException(f"{where + ': ' if where else ''}{describe(op)}: {reason}")
