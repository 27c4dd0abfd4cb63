"""`check-shards`: what operations state about pieces (`vllm_ir.sharded`) follows from what they do.

Pieces come from a reduce_scatter along the first dimension, from taking the rank's own rows of a value, or from
operations that compute each row from the same row of pieces cut alike. Nothing else may use pieces, but the all_gather
of their group. That other operands are the same on all ranks is what tensor parallelism promises; no program shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from vllm_ir.conversions.collectives import ALL_GATHER, REDUCE_SCATTER, collective_of
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.sequence_parallel.shards import SHARDED, Sharding, row_operands
from vllm_ir.conversions.value_views import is_view
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import sizes_of
from vllm_ir.frontends.distributed.group_places import Place, group_places


@dataclass(frozen=True)
class CheckShardsPass(ModulePass):
    """Check what the operations of a module state about values that ranks hold in pieces; changes nothing."""

    name = "check-shards"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Check every function of the module."""
        check_shards(op)


def check_shards(module: ModuleOp) -> None:
    """Prove what a module's operations state about pieces.

    Raises:
        PassFailedException: an operation states what does not follow, or uses pieces as if they were whole.
    """
    places = group_places(module)
    for function in module.body.block.ops:
        if isinstance(function, FuncOp):
            for op in function.block.ops:
                _check(op, places)


def sharding_of(op: object) -> Sharding | None:
    """How an operation says that its results were cut; None if they are whole."""
    given = op.attributes.get(SHARDED) if isinstance(op, Operation) else None
    if not isinstance(op, Operation) or given is None:
        return None
    dimension, group = (given.data.get("dim"), given.data.get("group")) if isinstance(given, DictionaryAttr) else (0, 0)
    if not isinstance(dimension, IntegerAttr) or not isinstance(group, StringAttr) or dimension.value.data != 0:
        fail(op, f'{SHARDED} is {given}; it takes {{dim = 0 : i64, group = "name"}}')
    return Sharding(0, group.data)


def _check(op: Operation, places: Mapping[str, Place]) -> None:
    stated = sharding_of(op)
    pieces = {index: cut for index, value in enumerate(op.operands) if (cut := sharding_of(value.owner)) is not None}
    if stated is None:
        for index, cut in pieces.items():
            if not _is_collective(op, ALL_GATHER, cut):
                fail(op, f"{_named(op.operands[index])} is a piece ({cut}), and only an all_gather makes it whole")
        return
    if pieces:
        _check_rows(op, stated, pieces)
    elif not _is_collective(op, REDUCE_SCATTER, stated) and not _takes_own_rows(op, stated, places):
        fail(op, f"is said to give pieces ({stated}), and neither scatters rows nor takes the rank's own")


def _check_rows(op: Operation, stated: Sharding, pieces: Mapping[int, Sharding]) -> None:
    rows = row_operands(op)
    for index, cut in pieces.items():
        if rows is None or index not in rows:
            fail(op, f"{_named(op.operands[index])} is a piece ({cut}), and the operation does not go row by row")
        if cut != stated:
            fail(op, f"{_named(op.operands[index])} is a piece ({cut}), and the results are pieces of {stated}")
    count = {sizes_of(value.type)[0] for value in (*op.results, *(op.operands[index] for index in pieces))}
    for index in rows or ():
        if index not in pieces:
            fail(op, f"{_named(op.operands[index])} is whole, and the operation goes row by row over pieces ({stated})")
    if len(count) > 1:
        fail(op, f"operands and results are pieces of {' and '.join(map(str, sorted(count, key=str)))} rows")


def _is_collective(op: Operation, kind: str, stated: Sharding) -> bool:
    """Whether an operation is a collective of that kind over the pieces that are stated."""
    found = collective_of(op)
    return found is not None and (found.kind, found.dimension, found.group) == (kind, stated.dimension, stated.group)


def _takes_own_rows(op: Operation, stated: Sharding, places: Mapping[str, Place]) -> bool:
    """Whether `op` selects the rank's entry of rows that a view has put into as many pieces as there are ranks."""
    place = places.get(stated.group)
    if place is None or place.rank is None or not isinstance(op, CallOp) or op.target != "aten.select.int":
        return False
    _, dimension, index = op.arguments()
    numbers = [item.value.data for item in (dimension, index) if isinstance(item, IntegerAttr)]
    pieces = op.operands[0]
    rest = sizes_of(op.results[0].type)
    return (
        numbers == [0, place.rank]
        and is_view(pieces.owner)
        and sizes_of(pieces.type) == (place.ranks, *rest)
        and len(rest) == 2
    )


def _named(value: SSAValue) -> str:
    return f"%{value.name_hint}" if value.name_hint else "an operand"
