"""Which updates happen in place, decided for a whole function before anything is changed.

Operations are gone through in program order. Copies that only pass a value on count as no operation at all until they
turn out to be needed. An update that nobody would notice takes the memory of its old value. Where somebody would, there
are three ways out, tried in this order: keep a copy that the program made itself; have the other use happen first; copy
whichever is smaller, the value that is still needed or the memory that would be overwritten. These are *cuts*: they
change the function, and the planning starts over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects.builtin import NameLoc
from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.analysis.aliases import AliasSets, Place, Storage, viewed_overload
from vllm_ir.conversions.analysis.regions import region_of, same_window
from vllm_ir.conversions.analysis.windows import whole_window
from vllm_ir.conversions.eliminate_clones.conflicts import Conflict, Conflicts
from vllm_ir.conversions.eliminate_clones.policy import Policy
from vllm_ir.conversions.eliminate_clones.schedule import can_precede, positions
from vllm_ir.conversions.eliminate_clones.updates import (
    Update,
    called_overload,
    copied_operand,
    piece_window,
    updates_of,
)
from vllm_ir.conversions.errors import describe, location_text
from vllm_ir.dialects.torch.call import REASON
from vllm_ir.dialects.vllm_ir.function import FuncOp, ReturnOp, root_of
from vllm_ir.dialects.vllm_ir.memory import AllocOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, byte_size, element_type_of, sizes_of, strides_of
from vllm_ir.frontends.fx.regions import overlaps_itself
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload
from vllm_ir.frontends.fx.types import is_shaped, is_tensor


@dataclass(frozen=True)
class Decision:
    """What becomes of an update: in place, or left as an operation that gives a new value."""

    update: Update
    place: Place | None
    """The memory that it overwrites; None if it is not in place."""
    done: bool = False
    """Whether the piece that it copies is there already."""


@dataclass
class Cuts:
    """Changes that a plan needs before it holds."""

    keep: dict[Operation, str] = field(default_factory=dict[Operation, str])
    """Copies of the program that stay, and why."""
    before: dict[Operation, set[Operation]] = field(default_factory=dict[Operation, set[Operation]])
    """Operations that have to happen before an update."""
    save: dict[tuple[SSAValue, Operation], str] = field(default_factory=dict[tuple[SSAValue, Operation], str])
    """Values to be copied before an update, for all uses behind it, and why."""
    copy: dict[tuple[Operation, int], str] = field(default_factory=dict[tuple[Operation, int], str])
    """Operands that an update must get a copy of, and why."""

    def __bool__(self) -> bool:
        return bool(self.keep or self.before or self.save or self.copy)


class Plan:
    """The decisions about a functional function, and the cuts that it lacks."""

    def __init__(self, function: FuncOp, policy: Policy, *, last: bool) -> None:
        """`last`: only make cuts that surely settle a conflict."""
        self.function = function
        self.policy = policy
        self.last = last
        self.aliases = AliasSets(function)
        self.position = positions(function.block)
        self.conflicts = Conflicts(self.aliases, self.position, passed_on, policy.leaves)
        self.decisions: dict[Operation, list[Decision]] = {}
        self.written: set[Storage] = set()
        self.overwritten: dict[SSAValue, SSAValue] = {}
        """Old values by the new ones that have taken their memory."""
        self.rewritten: dict[Operation, str] = {}
        """What the plan changes, in program order, and how."""
        self.cuts = Cuts()
        self.disallowed: list[Update] = []
        """Updates that have to stay operations on values, or that the policy wants to."""
        self.refused: list[Update] = []
        """Updates that would need a copy of their old value."""
        self._last_use: dict[SSAValue, int] = {}

    def run(self) -> Plan:
        """Decide all updates."""
        for op in self.position:
            self._visit(op)
        return self

    def _visit(self, op: Operation) -> None:
        if (source := passed_on(op)) is not None:
            self.aliases.alias(op.results[0], source)
            self.rewritten[op] = "is dropped"
            if self._is_moved(op.results[0], self.aliases.places[source]):
                self.cuts.keep[op] = f"{name_of(op.results[0])} is looked at by its position in memory"
            elif _is_returned(op.results[0]) and self._is_part(self.aliases.places[source]):
                self.cuts.keep[op] = f"{name_of(op.results[0])} is returned, and would keep the memory around it alive"
            return
        updates = [] if self.policy.leaves(op) else list(updates_of(op))
        if not updates:
            self.aliases.visit(op)
            return
        decisions = [self._decide(update) for update in updates]
        if any(decision.place is None for decision in decisions):
            # One call writes all that it writes in place, or nothing.
            decisions = [Decision(update, None) for update in updates]
        self.decisions[op] = decisions
        first = decisions[0]
        if first.done:
            self.rewritten[op] = "is dropped: what it puts there is there already"
        elif first.place is not None and first.update.result is not None:
            self.rewritten[op] = "is done in place"
        for decision in decisions:
            if decision.place is not None:
                self.written.add(decision.place.storage)
                if decision.update.result is not None:
                    self.overwritten[decision.update.result] = decision.update.old
        for result in op.results:
            if result in self.overwritten:
                self.aliases.alias(result, self.overwritten[result])
            elif is_shaped(result.type):
                self.aliases.fresh(result)

    def _decide(self, update: Update) -> Decision:
        place = self.aliases.places[update.old]
        window = piece_window(update, place, self.aliases)
        # A copy of the old value would not make it known where the piece goes, nor put the result where it must be.
        hidden = window is None and place.window is not None
        if hidden or (update.result is not None and self._is_moved(update.result, place)):
            self.disallowed.append(update)
            return Decision(update, None)
        views = self._views_of(update.old)
        if update.result is not None:
            if (reason := self._forbidden(update, place, window)) is not None:
                return self._copied(update, reason)
            if not self.policy.allows(update, place.storage, views):
                self.disallowed.append(update)
                return Decision(update, None)
        written = place if update.view is None else place.part(window)
        if update.piece is not None and self._is_there(update.op.operands[update.piece], written):
            dropped = not isinstance(update.op, WriteOp) or self.policy.drops(update.op)
            return Decision(update, written, done=dropped)
        return self._settled(update, written)

    def _is_moved(self, value: SSAValue, place: Place) -> bool:
        """Whether somebody asks for positions in the memory of a value, and `place` is not like memory of its own."""
        if not is_shaped(value.type) or not _is_located(value):
            return False
        own = value.type if isinstance(value.type, BufferType) else whole_window(value.type)
        return place.window is None or not same_window(place.window, own)

    def _is_part(self, place: Place) -> bool:
        """Whether a window is known to be less than the memory that was made for it."""
        storage = place.storage
        if storage.is_argument or storage.is_constant or place.window is None or not is_tensor(storage.root.type):
            return False
        held, needed = _span(whole_window(storage.root.type)), _span(place.window)
        return held is not None and needed is not None and needed < held

    def _is_there(self, piece: SSAValue, written: Place) -> bool:
        place = self.aliases.places.get(piece)
        if place is None or place.storage is not written.storage or place.window is None or written.window is None:
            return False
        return same_window(place.window, written.window)

    def _forbidden(self, update: Update, place: Place, window: BufferType | None) -> str | None:
        """Why an update may not write to the memory of its old value, whoever reads it."""
        storage = place.storage
        if storage.is_constant:
            return f"{name_of(storage.root)} is a constant"
        if storage.is_argument and not (storage.mutated or storage.donated):
            return f"{name_of(storage.root)} is the caller's, who did not ask for the write"
        if storage.is_argument and not isinstance(storage.root.type, BufferType):
            return f"{name_of(storage.root)} is donated as a value, not as a buffer"
        if window is None or place.window is None:
            return f"the window of {name_of(update.old)} is not known at compile time"
        # A piece that does not may still be other elements of the old value as well.
        if overlaps_itself(place.window) or overlaps_itself(window):
            return f"the window of {name_of(update.old)} overlaps itself"
        if op_info(update.form).layout_sensitive and not _same_layout(update.old, place.window):
            return f"{name_of(update.old)} is laid out in another way than the operator takes it"
        return None

    # Where a value comes from

    def _path(self, value: SSAValue) -> Iterator[Operation]:
        """Copies and views that lead from the root of its memory to a value, the nearest to the value first."""
        while isinstance(op := value.owner, Operation):
            place = self.aliases.places.get(value)
            if place is not None and place.storage.root is value:
                return
            if value in self.overwritten:
                value = self.overwritten[value]
                continue
            if passed_on(op) is None and viewed_overload(op) is None:
                return
            yield op
            value = op.operands[0]

    def _copy_behind(self, value: SSAValue) -> Operation | None:
        """The nearest copy on the path of a value that is not made, if there is one."""
        return next((op for op in self._path(value) if passed_on(op) is not None), None)

    def _views_of(self, value: SSAValue) -> list[Overload]:
        """The view operators on the path of a value, the nearest to the root first."""
        views = [viewed_overload(op) for op in self._path(value)]
        return [view for view in reversed(views) if view is not None]

    # Conflicts

    def _settled(self, update: Update, written: Place) -> Decision:
        """The update in place, after the cuts that this takes."""
        at = self.position[update.op]
        conflicts = [*self._operands(update, written), *self._later_uses(written, at)]
        if not conflicts:
            return Decision(update, written)
        if update.result is not None and (self.last or self._copy_is_smaller(update, written, conflicts)):
            return self._copied(update, self._noticed(conflicts[0]))
        for conflict in conflicts:
            self._cut(update, written, conflict)
        return Decision(update, written)

    def _operands(self, update: Update, written: Place) -> list[Conflict]:
        """Other operands of the same operation in the memory that it writes."""
        # Of two operands that are both written, the second is judged, and gets a copy.
        later = [other.index for other in updates_of(update.op) if other.index > update.index]
        found: list[Conflict] = []
        for index, operand in enumerate(update.op.operands):
            place = self.aliases.places.get(operand)
            if index != update.index and index not in later and place is not None and place.overlaps(written):
                found.append(Conflict(operand, update.op))
        return found

    def _later_uses(self, written: Place, at: int) -> list[Conflict]:
        """Uses behind the update of values that are in the memory before it."""
        storage = written.storage
        storage.values = [value for value in storage.values if self._used_until(value) > at]
        found: dict[Conflict, None] = {}
        for value in storage.values:
            place = self.aliases.places[value]
            if place.overlaps(written):
                found.update(dict.fromkeys(self.conflicts.of(value, place, written, at)))
        return list(found)

    def _used_until(self, value: SSAValue) -> int:
        if value not in self._last_use:
            self._last_use[value] = self.conflicts.last_use(value)
        return self._last_use[value]

    def _noticed(self, conflict: Conflict) -> str:
        return f"{name_of(conflict.value)} is {_needed_by(conflict.user)}"

    # Cuts

    def _copied(self, update: Update, reason: str) -> Decision:
        """Give the update a copy of its old value; it is that of the program if it made one."""
        self.refused.append(update)
        copy = self._copy_behind(update.old)
        if copy is not None and not self.last:
            self.cuts.keep[copy] = reason
        else:
            self.cuts.copy[update.op, update.index] = reason
        return Decision(update, None)

    def _copy_is_smaller(self, update: Update, written: Place, conflicts: Sequence[Conflict]) -> bool:
        """Whether copying the old value is better than what else would settle all conflicts."""
        saved = [conflict.value for conflict in conflicts if not self._is_free(update, conflict)]
        if not saved:
            return False
        if self._copy_behind(update.old) is not None or any(
            c.user is update.op and self._is_written(c) for c in conflicts
        ):
            return True
        old, sizes = _bytes(update.old), [_bytes(value) for value in dict.fromkeys(saved)]
        if old is None or None in sizes:
            return not written.storage.mutated
        total = sum(size for size in sizes if size is not None)
        # What the caller gets back is written in the end anyway: a copy of it would have to be copied back.
        return old < total or (old == total and not written.storage.mutated)

    def _is_written(self, conflict: Conflict) -> bool:
        """Whether the user of a conflict writes the value itself, and not only reads it."""
        return any(update.old is conflict.value for update in updates_of(conflict.user))

    def _is_free(self, update: Update, conflict: Conflict) -> bool:
        """Whether a conflict is settled without a copy that the program did not make."""
        return self._copy_behind(conflict.value) is not None or self._can_precede(conflict.user, update)

    def _can_precede(self, user: Operation, update: Update) -> bool:
        op = update.op
        if self.last or user is op or not self.policy.hoists(update):
            return False
        if isinstance(user, WriteOp) and isinstance(op, WriteOp):
            # Final writes to different memory, in any order that neither overwrites what the other still copies.
            copied, written = self.aliases.places[op.value], self.aliases.places[root_of(user.buffer)]
            return copied.storage is not written.storage
        return not any(True for _ in updates_of(user)) and can_precede(user, op, self.position)

    def _cut(self, update: Update, written: Place, conflict: Conflict) -> None:
        copy = self._copy_behind(conflict.value)
        if self._can_precede(conflict.user, update):
            self.cuts.before.setdefault(update.op, set()).add(conflict.user)
        elif copy is not None and not self.last:
            self.cuts.keep[copy] = self._overwritten(conflict, update)
            if self.position[copy] > self.position[update.op]:
                self.cuts.before.setdefault(update.op, set()).add(copy)
        else:
            self.cuts.save[conflict.value, update.op] = self._overwritten(conflict, update)

    def _overwritten(self, conflict: Conflict, update: Update) -> str:
        if conflict.user is update.op:
            return f"{name_of(conflict.value)} shares the memory that {describe(update.op)} writes"
        by = f"{describe(update.op)}{_at(update.op)}"
        return f"{name_of(conflict.value)} is overwritten by {by} and {_needed_by(conflict.user)}"


def passed_on(op: Operation) -> SSAValue | None:
    """The operand that `op` passes on without a copy; a copy with a reason stays one."""
    return None if REASON in op.attributes else copied_operand(op)


def _is_returned(value: SSAValue) -> bool:
    """Whether a value leaves the function as a new tensor."""
    return any(isinstance(use.operation, ReturnOp | AllocOp) for use in value.uses)


def _is_located(value: SSAValue) -> bool:
    """Whether an operator looks at positions in the memory of a value, or of a view of it (`as_strided`)."""
    pending = [value]
    while pending:
        for use in pending.pop().uses:
            overload = called_overload(use.operation)
            if overload is not None and any(a.name == "storage_offset" for a in op_info(overload).arguments):
                return True
            if passed_on(use.operation) is not None or (use.index == 0 and viewed_overload(use.operation) is not None):
                pending.extend(use.operation.results)
    return False


def name_of(value: SSAValue) -> str:
    """How a value is called in messages."""
    owner = value.owner
    if isinstance(owner, Operation) and isinstance(owner.location, NameLoc) and len(owner.results) == 1:
        return f"%{owner.location.desc.data}"
    return f"%{value.name_hint or '?'}"


def _needed_by(user: Operation) -> str:
    return "returned" if isinstance(user, ReturnOp) else f"still needed by {describe(user)}{_at(user)}"


def _at(op: Operation) -> str:
    where = location_text(op)
    return f" at {where}" if where else ""


def _bytes(value: SSAValue) -> int | None:
    kind = value.type
    sizes = [size for size in sizes_of(kind) if isinstance(size, int)]

    return prod(sizes) * byte_size(element_type_of(kind)) if len(sizes) == len(sizes_of(kind)) else None


def _span(window: BufferType) -> int | None:
    """Bytes from the first to the last of a window; None if they are not known."""
    region = region_of(window)
    span = None if region is None else region.end - region.offset
    return span if isinstance(span, int) else None


def _same_layout(value: SSAValue, window: BufferType) -> bool:
    """Whether a value has the strides in memory that its type records."""
    return strides_of(value.type) == strides_of(window)
