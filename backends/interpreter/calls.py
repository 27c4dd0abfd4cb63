"""Calls of operators, run by PyTorch itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from torch.utils import _pytree as pytree
from xdsl.ir import Operation
from xdsl.utils.exceptions import InterpretationError

from vllm_ir.dialects.messages import operation_text


@dataclass(frozen=True)
class Call:
    """A call with the values of its arguments; `op` is what it is in the IR."""

    op: Operation
    target: object
    args: tuple[object, ...]
    kwargs: Mapping[str, object]


def run_call(call: Call) -> object:
    """What PyTorch gives for a call; `InterpretationError` with the operation if it refuses it."""
    if not callable(call.target):
        raise InterpretationError(f"{operation_text(call.op)} calls {call.target!r}, which cannot be called")
    try:
        return call.target(*call.args, **call.kwargs)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        reason = " ".join(str(error).split())
        raise InterpretationError(f"{operation_text(call.op)}: {type(error).__name__}: {reason}") from error


def flat_results(value: object) -> list[object]:
    """The results of a call in the order in which an operation has them."""
    return list(cast("Sequence[object]", pytree.tree_leaves(value)))
