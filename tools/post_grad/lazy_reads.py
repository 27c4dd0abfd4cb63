"""Values that Inductor would compute too late: behind a write to the memory that they read.

A value is *lazy* in a window if computing it reads that window, and nothing puts it into memory before it is used. The
rules come from `test/backends/inductor/test_faithful_forms.py`, which shows each of them to be needed and enough:
Inductor's own writes put lazy values into memory first, except for the source of the very write; writes by operators
that it only calls do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from xdsl.ir import Operation, SSAValue

from vllm_ir.backends.inductor.laziness import is_extern, is_realized, places_operands
from vllm_ir.conversions.analysis.aliases import Place, Storage, viewed_overload
from vllm_ir.conversions.eliminate_clones.plan import Decision, Plan, passed_on
from vllm_ir.conversions.eliminate_clones.updates import called_overload
from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.torch.call import REASON, CallOp
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.dialects.vllm_ir.types import element_type_of, sizes_of
from vllm_ir.frontends.fx.schemas import op_info, scattered_view, writes_parts
from vllm_ir.frontends.fx.types import is_shaped

aten = torch.ops.aten


class LazyReads:
    """The lazy values of a planned function."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.reads: dict[SSAValue, dict[Place, bool]] = {}
        """For each lazy value the windows that it reads, and whether there is a reduction on the way."""
        self.members: dict[Storage, list[SSAValue]] = {}
        """The values in each storage that is written."""
        self.late: list[tuple[SSAValue, Decision]] = []
        """Values to be put into memory before a write, or before the write that they are the source of."""
        self.racing: list[Decision] = []
        """Writes that may happen in the middle of an earlier read."""
        self._reads_of_written: dict[Storage, dict[Place, None]] = {}
        """What is read of memory that has been written before in the graph."""

    def run(self) -> LazyReads:
        """Find all lazy values, and those that are late."""
        for op in self.plan.position:
            for decision in self.plan.decisions.get(op, ()):
                if decision.place is not None and not decision.done:
                    self.late.extend((value, decision) for value in self._late(decision, decision.place))
                    if self._races(decision, decision.place):
                        self.racing.append(decision)
                    self._reads_of_written.setdefault(decision.place.storage, {})
            self._visit(op)
            self._note_reads(op)
        return self

    def _races(self, decision: Decision, written: Place) -> bool:
        """Whether Inductor may fuse a write with a kernel in front of it that reads the same memory at other places.

        It compares the places only for memory that was not written before in the graph.
        """
        reads = self._reads_of_written.get(written.storage, {})
        return not is_extern(decision.update.form) and any(place.overlaps(written) for place in reads)

    def _note_reads(self, op: Operation) -> None:
        overload = called_overload(op)
        if overload is None or is_extern(overload) or op_info(overload).is_view or passed_on(op) is not None:
            return
        decisions = self.plan.decisions.get(op, ())
        if any(decision.done for decision in decisions):
            return  # nothing happens
        overwritten = [decision.update.index for decision in decisions if decision.place is not None]
        for index, operand in enumerate(op.operands):
            place = self.plan.aliases.places.get(operand)
            if place is not None and index not in overwritten and place.storage in self._reads_of_written:
                self._reads_of_written[place.storage][place] = None

    def _visit(self, op: Operation) -> None:
        overload = called_overload(op)
        realized = REASON in op.attributes or (overload is not None and is_realized(overload))
        inherited = None if realized else self._inherited(op)
        for result in op.results:
            place = self.plan.aliases.places.get(result)
            if place is not None and place.storage in self.plan.written:
                self.reads[result] = {place: False}
                self.members.setdefault(place.storage, []).append(result)
            elif inherited:
                self.reads[result] = inherited

    def _inherited(self, op: Operation) -> dict[Place, bool]:
        overload = called_overload(op)
        reduces = overload is not None and torch.Tag.reduction in overload.tags
        found: dict[Place, bool] = {}
        for operand in op.operands:
            for place, reduced in self.reads.get(operand, {}).items():
                found[place] = reduces or reduced or found.get(place, False)
        return found

    def _late(self, decision: Decision, written: Place) -> Iterator[SSAValue]:
        update = decision.update
        if is_extern(update.form):
            at = self.plan.position[update.op]
            if self._is_part(written, at):
                yield update.old
            yield from self._pending(written, at)
            return
        for index, operand in enumerate(update.op.operands):
            if index != update.index and self._is_inlined(operand, index, decision, written):
                yield operand

    def _is_part(self, written: Place, at: int) -> bool:
        """Whether memory of Inductor's own has become part of a result before it is written."""
        users = (use.operation for value in self.members.get(written.storage, ()) for use in value.uses)
        return not written.storage.is_argument and any(
            self.plan.position[user] < at
            and (overload := called_overload(user)) is not None
            and places_operands(overload)
            for user in users
        )

    def _pending(self, written: Place, at: int) -> Iterator[SSAValue]:
        """Lazy values with a use behind a write to something that they read."""
        position = self.plan.position
        self.reads = {
            value: reads
            for value, reads in self.reads.items()
            if any(position[use.operation] > at for use in value.uses)
        }
        for value, reads in self.reads.items():
            if self.plan.aliases.places[value].storage in self.plan.written:
                continue  # the memory itself, whose later readers are in order with the write
            if any(place.overlaps(written) for place in reads):
                yield value

    def _is_inlined(self, operand: SSAValue, index: int, decision: Decision, written: Place) -> bool:
        """Whether a source that reads what is written is computed by the kernel that writes.

        The rules are those of `faithful_forms.py`.
        """
        update = decision.update
        if isinstance(update.op, WriteOp) and _is_functional_update(operand):
            return True  # Inductor would put it in place itself
        reduced = [reduced for place, reduced in self.reads.get(operand, {}).items() if place.overlaps(written)]
        if not reduced:
            return False
        if update.form is aten.index_put_.default:
            return any(reduced) or index in _indices_of(update.op) or _is_view(operand)
        if update.form is aten.copy_.default:
            return any(reduced) or _is_view(operand) or not _is_piece(operand, written)
        return True


def _indices_of(op: Operation) -> set[int]:
    """The operands that tell `index_put` where to write."""
    return set(operand_indices([op.args.data[1]])) if isinstance(op, CallOp) else set()


def _is_view(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and viewed_overload(value.owner) is not None


def _is_functional_update(value: SSAValue) -> bool:
    """Whether a value, but for views of it, is another one with a part replaced."""
    while _is_view(value) and isinstance(value.owner, Operation):
        value = value.owner.operands[0]
    overload = called_overload(value.owner) if isinstance(value.owner, Operation) else None
    return overload is not None and (scattered_view(overload) is not None or writes_parts(overload))


def _is_piece(operand: SSAValue, written: Place) -> bool:
    """Whether a source has the sizes and the element type of what it is written to."""
    window = written.window
    if window is None or not is_shaped(operand.type):
        return False
    same = element_type_of(operand.type) == window.element_type
    return same and sizes_of(operand.type) == sizes_of(window)
