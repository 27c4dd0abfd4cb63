"""Order of operations: which are needed, and how far a read may move."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator, RecursiveMemoryEffect, is_side_effect_free

from vllm_ir.dialects.stablehlo import CustomCallOp


def is_pure(op: Operation) -> bool:
    """Whether an operation does nothing but give results."""
    if op.regions and op.has_trait(RecursiveMemoryEffect):
        return all(
            inner.has_trait(IsTerminator) or inner.name == "stablehlo.return" or is_pure(inner)
            for region in op.regions
            for block in region.blocks
            for inner in block.ops
        )
    if isinstance(op, CustomCallOp):
        # xdsl-jax gives it the abstract trait, which cannot be asked.
        return not isinstance(flag := op.properties.get("has_side_effect"), IntegerAttr) or not flag.value.data
    return is_side_effect_free(op)


def inputs_of(op: Operation) -> Sequence[SSAValue]:
    """The values that an operation uses, those that its regions take from outside among them."""
    if not op.regions:
        return op.operands
    inside = {id(block) for region in op.regions for block in _blocks(region.blocks)}
    captured = [
        operand
        for inner in op.walk()
        if inner is not op
        for operand in inner.operands
        if id(_block_of(operand)) not in inside
    ]
    return [*op.operands, *dict.fromkeys(captured)]


def _blocks(blocks: Sequence[Block]) -> list[Block]:
    found = list(blocks)
    for block in found:
        found.extend(inner for op in block.ops for region in op.regions for inner in region.blocks)
    return found


def _block_of(value: SSAValue) -> Block | None:
    owner = value.owner
    return owner if isinstance(owner, Block) else owner.parent


@dataclass(frozen=True)
class Needed:
    """The operations of a block that something depends on, in their order, and those of them that have effects."""

    ops: list[Operation]
    effects: set[Operation]

    @staticmethod
    def of(block: Block) -> Needed:
        """Find them from the end."""
        wanted: set[SSAValue] = set()
        found, effects = list[Operation](), set[Operation]()
        for op in reversed(list(block.ops)):
            pure = is_pure(op)
            if not pure or op is block.last_op or any(result in wanted for result in op.results):
                wanted.update(inputs_of(op))
                found.append(op)
                if not pure:
                    effects.add(op)
        return Needed(found[::-1], effects)

    def previous_effects(self) -> dict[Operation, Operation]:
        """For each operation with effects, the one before it."""
        ops = [op for op in self.ops if op in self.effects]
        return dict(zip(ops[1:], ops, strict=False))


def first_dependents(needed: Needed, marked: Container[Operation]) -> dict[Operation, int]:
    """For each operation, the place of the first marked one that depends on its results, or how many there are.

    Operations with effects count as depending on each other, in their order.
    """
    firsts: dict[SSAValue, int] = {}
    found: dict[Operation, int] = {}
    ops = needed.ops
    none = behind = len(ops)
    for place in range(none - 1, -1, -1):
        op = ops[place]
        first = min([firsts.get(result, none) for result in op.results], default=none)
        if op in needed.effects:
            first = behind = min(first, behind)
        found[op] = first
        if op in marked:
            first = place
        for value in inputs_of(op):
            if firsts.get(value, none) > first:
                firsts[value] = first
    return found
