"""Copies of what a pattern returns, so that results that are views of arguments are traced as those of other values.

A function that returns a view of an argument says where in the argument's memory that is. In the middle of a program
there is no such memory, and the call of the view operator stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor
from torch.utils import _pytree as pytree
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.outputs import output_items

_Tree = TypeVar("_Tree")


def with_copies(results: _Tree) -> _Tree:
    """The results of a function, each tensor copied."""
    return pytree.tree_map_only(Tensor, Tensor.clone, results)


@dataclass(frozen=True)
class DropReturnedCopiesPass(ModulePass):
    """Return what is copied in the place of the copies that `with_copies` has made."""

    name = "drop-returned-copies"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every function of the module."""
        for function in op.body.block.ops:
            if isinstance(function, FuncOp):
                _drop(function)


def _drop(function: FuncOp) -> None:
    terminator, count = function.terminator, function.original_output_count
    for index in {item for item in output_items(terminator)[:count] if item is not None}:
        terminator.operands[index] = _copied(terminator.operands[index])
    types = [value.type for value in terminator.operands]
    function.properties["function_type"] = FunctionType.from_lists(list(function.block.arg_types), types)


def _copied(value: SSAValue) -> SSAValue:
    op = value.op if isinstance(value, OpResult) else None
    if not isinstance(op, CallOp) or op.target != "aten.clone.default":
        raise PassFailedException(f"%{value.name_hint} is returned and no copy")
    return op.operands[0]
