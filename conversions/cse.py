"""`cse`: xDSL's elimination of common subexpressions, and what it does not know of our operations.

An operation that takes the place of an equal, later one is used where that was. If its result was donated before, it is
not any more: the donation is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.transforms.common_subexpression_elimination import cse

from vllm_ir.conversions.donations import drop_invalid_donations
from vllm_ir.dialects.vllm_ir.function import FuncOp


@dataclass(frozen=True)
class CsePass(ModulePass):
    """Let one operation stand for equal ones where nothing between them writes what they read."""

    name = "cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite all of a module."""
        cse(op)
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None:
                drop_invalid_donations(function)
