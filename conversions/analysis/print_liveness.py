"""`print-liveness`: annotates operations with the storages that nobody needs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from vllm_ir.conversions.analysis.aliases import AliasSets
from vllm_ir.conversions.analysis.liveness import Liveness
from vllm_ir.conversions.analysis.print_aliases import annotate, printed_names
from vllm_ir.dialects.vllm_ir.function import FuncOp

DIES = "vllm_ir.dies"
"""Attribute of an operation: the storages that are not needed behind it."""
LIVE_OUT = "vllm_ir.live_out"
"""Attribute of a function: the storages whose contents matter behind the return, and why."""


@dataclass(frozen=True)
class PrintLivenessPass(ModulePass):
    """Annotate operations with the storages that die there, and functions with those that are live out."""

    name = "print-liveness"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Annotate every function; annotations that it has already are replaced."""
        names = printed_names(op)
        for function in op.body.block.ops:
            if isinstance(function, FuncOp):
                _annotate_function(function, names)


def _annotate_function(function: FuncOp, names: Mapping[SSAValue, str]) -> None:
    liveness = Liveness(function, AliasSets(function).run())
    for op in function.block.ops:
        annotate(op, DIES, [names[storage.root] for storage in liveness.dies_at(op)])
    live_out = liveness.live_out.items()
    annotate(function, LIVE_OUT, [f"{names[storage.root]}: {', '.join(reasons)}" for storage, reasons in live_out])


__all__ = ["PrintLivenessPass"]
