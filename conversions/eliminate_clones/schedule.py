"""The order of operations: putting some in front of others without breaking dependences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from xdsl.ir import Block, Operation, OpResult
from xdsl.traits import IsTerminator, is_side_effect_free


def positions(block: Block) -> dict[Operation, int]:
    """The place of each operation in the order."""
    return {op: number for number, op in enumerate(block.ops)}


def producers(op: Operation) -> Iterator[Operation]:
    """Operations that give the operands of `op`."""
    for operand in op.operands:
        if isinstance(operand, OpResult):
            yield operand.op


def can_precede(op: Operation, other: Operation, position: Mapping[Operation, int]) -> bool:
    """Whether `op`, which is behind `other`, could happen before it, because nothing that it needs depends on it."""
    pending, seen = [op], {op}
    while pending:
        current = pending.pop()
        if current is other or current.has_trait(IsTerminator) or not is_side_effect_free(current):
            return False
        for producer in producers(current):
            if producer not in seen and position[producer] >= position[other]:
                seen.add(producer)
                pending.append(producer)
    return True


def reorder(block: Block, before: Mapping[Operation, Set[Operation]]) -> None:
    """Move operations so that each comes behind those in `before` that it is mapped to, and otherwise as they were.

    Of wishes that contradict each other, or the values that operations need, not all are fulfilled.
    """
    if not before:
        return
    order = positions(block)
    # By position: the order of a set is another one in each run.
    wished = {op: sorted(others, key=order.__getitem__) for op, others in before.items()}
    done: dict[Operation, None] = {}
    for op in order:
        _place(op, wished, done)
    for op in done:
        op.detach()
    block.add_ops(done)


def _place(op: Operation, before: Mapping[Operation, Sequence[Operation]], done: dict[Operation, None]) -> None:
    """Add `op` to `done`, behind all that it needs."""
    pending: list[tuple[Operation, bool]] = [(op, False)]
    entered: set[Operation] = set()
    while pending:
        current, ready = pending.pop()
        if ready:
            done.setdefault(current)
        elif current not in done and current not in entered:
            entered.add(current)
            pending.append((current, True))
            wished = [other for other in before.get(current, ()) if not _needs(other, entered, done)]
            needed = [*producers(current), *wished]
            pending.extend((other, False) for other in reversed(needed) if other not in done)


def _needs(op: Operation, others: Set[Operation], done: Mapping[Operation, None]) -> bool:
    """Whether `op` cannot be placed before one of `others`."""
    pending, seen = [op], {op}
    while pending:
        current = pending.pop()
        if current in others:
            return True
        for producer in producers(current):
            if producer not in done and producer not in seen:
                seen.add(producer)
                pending.append(producer)
    return False
