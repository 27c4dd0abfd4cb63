"""Whether a match may be replaced where it is, and replacing it.

Functional modules are about values, so no match can cross a write: what an operation read is its operand. Left to look
at is whether the rest of the program needs a value that goes away, and whether all that uses the results can come
behind all that the replacement needs.

Collectives have to come in the same order on all ranks, and in the same place among what else acts outside of the
program. The two sides of a fusion name the same groups in the same order (`instances.py`); here it is seen to that
nothing of that kind stands between the first collective of a match and the place of what is put there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.errors import name_text
from vllm_ir.conversions.fusion.matcher import Match, Miss
from vllm_ir.conversions.fusion.pattern import Side, Variant, acts_outside, is_matchable
from vllm_ir.conversions.fusion.sizes import same_type
from vllm_ir.conversions.inline import inline, replace_value
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.frontends.distributed.group_names import is_collective
from vllm_ir.frontends.fx.build import CallBuilder


class Order:
    """The places of a function's operations, which stay comparable while operations come and go."""

    def __init__(self, function: FuncOp) -> None:
        self._places: dict[Operation, float] = {op: float(i) for i, op in enumerate(function.block.ops)}

    def __getitem__(self, op: Operation) -> float:
        return self._places[op]

    def last(self, operations: Iterable[Operation]) -> Operation:
        """The last of some operations."""
        return max(operations, key=self._places.__getitem__)

    def place_before(self, operations: list[Operation], at: Operation) -> None:
        """Note that operations were put before another one, behind all that was there."""
        previous = operations[0].prev_op if operations else None
        start = self._places[previous] if previous is not None else self._places[at] - 1.0
        step = (self._places[at] - start) / (len(operations) + 1)
        for number, op in enumerate(operations, 1):
            self._places[op] = start + number * step

    def erase(self, op: Operation) -> None:
        """Take an operation away that nothing uses."""
        del self._places[op]
        op.detach()
        op.drop_all_references()  # `erase` would also look for users of results and replace them


@dataclass
class Site:
    """A match that may be replaced."""

    match: Match
    last: Operation
    """The last of its operations; what takes their place comes before it."""
    late: list[Operation]
    """Operations that use results and come before it: they have to move behind."""


def site_of(match: Match, variant: Variant, order: Order) -> Site | Miss:
    """The site of a match, or what forbids to replace it."""
    matched = set(match.operations)
    reached = len(match.operations) + 1  # further than any match whose types or attributes are wrong
    outputs = {match.value(output) for output in variant.outputs}
    last = order.last(matched)
    for op in matched:
        for result in op.results:
            if result not in outputs and (user := _outside(result, matched)) is not None and op.operands:
                return Miss(reached, op, f"%{result.name_hint} is also used by {name_text(user)}")
    between = _overtaken(matched, last, order) if variant.side.groups else None
    if between is not None:
        return Miss(reached, between, "it acts outside the program, among collectives that would change places")
    late = sorted(_dependents(outputs, matched, order, order[last]), key=order.__getitem__)
    for op in late:
        if not isinstance(op, RelayoutOp) and (acts_outside(op) or not is_matchable(op)):
            return Miss(reached, op, "it uses a result, comes before the last operand, and cannot move")
    moved = set(late)
    for value in match.tensors:
        if isinstance(value.owner, Operation) and value.owner in moved:
            return Miss(reached, value.owner, f"%{value.name_hint} depends on a result of the fused operations")
    return Site(match, last, late)


def _outside(value: SSAValue, matched: set[Operation]) -> Operation | None:
    return next((use.operation for use in value.uses if use.operation not in matched), None)


def _overtaken(matched: set[Operation], last: Operation, order: Order) -> Operation | None:
    """An operation that acts outside the program and stands between the collectives of a match and its last operation.

    One that comes before the first collective stays before it, and one behind the last operation stays behind.
    """
    op = min(filter(is_collective, matched), key=order.__getitem__, default=last)
    while op is not last:
        if op not in matched and acts_outside(op):
            return op
        if op.next_op is None:
            raise ValueError(f"{last.name} does not come behind {op.name}")
        op = op.next_op
    return None


def _dependents(outputs: set[SSAValue], matched: set[Operation], order: Order, end: float) -> set[Operation]:
    """Operations before `end` that depend on outputs of the match and are not part of it."""
    found: set[Operation] = set()
    pending = list(outputs)
    while pending:
        for use in pending.pop().uses:
            op = use.operation
            if op not in matched and op not in found and order[op] < end:
                found.add(op)
                pending.extend(op.results)
    return found


def _erased_as_unused(op: Operation, order: Order) -> bool:
    if any(result.first_use is not None for result in op.results) or acts_outside(op):
        return False
    order.erase(op)
    return True


def _pass_on_facts(match: Match, new: Sequence[Operation]) -> None:
    """What all operations of a match state in attributes, as that they work on pieces, holds for what replaces them.

    It is stated where an operand comes from an operation that states it.
    """
    first, *others = match.operations
    if not first.attributes:
        return
    facts = {
        name: fact for name, fact in first.attributes.items() if all(op.attributes.get(name) == fact for op in others)
    }
    for op in new if facts else ():
        owners = [value.owner for value in op.operands]
        if any(isinstance(owner, Operation) and facts.items() <= owner.attributes.items() for owner in owners):
            op.attributes.update(facts)


def replace(
    site: Site, variant: Variant, after: Side, original: Callable[[Attribute], Attribute], order: Order
) -> list[Operation]:
    """Put `after` in the place of a match; returns the new operations."""
    last, block = site.last, site.last.parent
    if block is None:
        raise ValueError(f"{last.name} is not in a block")
    new: list[Operation] = []

    def insert(op: Operation) -> None:
        block.insert_op_before(op, last)
        new.append(op)

    b = CallBuilder(insert)
    b.at(last)
    results = inline(after.traced, site.match.tensors, original, b)
    for output, result in zip(variant.outputs, results, strict=False):
        replace_value(site.match.value(output), result, b, same_type)
    _pass_on_facts(site.match, new)
    order.place_before(new, last)
    for op in site.late:
        op.detach()
        block.insert_op_before(op, last)
    order.place_before(site.late, last)
    for op in sorted(set(site.match.operations), key=order.__getitem__, reverse=True):
        if not any(result.uses for result in op.results):
            order.erase(op)
    return [op for op in reversed(new) if not _erased_as_unused(op, order)][::-1]
