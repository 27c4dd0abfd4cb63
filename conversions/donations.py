"""Donated values behind changes of a function."""

from __future__ import annotations

from vllm_ir.dialects.torch.call import index_array
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.high_level import donated_indices


def drop_invalid_donations(function: FuncOp) -> None:
    """Keep a donation only where the donated *value* has no later use.

    A value may stand for other memory too (`x.copy_(y)` makes x's value y's), which nobody gave away. And passes that
    put one value in the place of an equal one give it uses behind those that it had.
    """
    position = {op: number for number, op in enumerate(function.block.ops)}
    for op, number in position.items():
        donated = donated_indices(op)
        if not donated:
            continue
        kept = [
            index
            for index in donated
            if all(
                position[use.operation] <= number and (use.operation is not op or use.index == index)
                for use in op.operands[index].uses
            )
        ]
        op.properties.pop("donated")
        if kept:
            op.properties["donated"] = index_array(kept)
