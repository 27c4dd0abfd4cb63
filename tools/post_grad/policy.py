"""Which updates are put back into Inductor's graph.

A caller's tensor is either written in place by everything that updates it, in forms that Inductor keeps, or not at all:
a functional scatter beside a write to the same memory would be put in place once more by Inductor itself, without
asking what its source is. Operators that Inductor has kernels for are left functional on memory of its own, where it
fuses them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from vllm_ir.backends.inductor.faithful_forms import is_faithful
from vllm_ir.backends.inductor.laziness import is_extern
from vllm_ir.conversions.analysis.aliases import Storage
from vllm_ir.conversions.eliminate_clones.plan import Plan
from vllm_ir.conversions.eliminate_clones.policy import Policy
from vllm_ir.conversions.eliminate_clones.updates import Update
from vllm_ir.dialects.vllm_ir.function import root_of
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.dialects.vllm_ir.types import element_type_of
from vllm_ir.frontends.fx.torch_objects import Overload
from vllm_ir.frontends.fx.types import dtype_of


class InductorPolicy(Policy):
    """Allows what Inductor keeps, and learns from each plan which memory has to be left alone."""

    def __init__(self, *, writes: bool = False) -> None:
        """`writes`: final values have to be written in the graph, if not in place then by a copy."""
        self.writes = writes
        self.frozen: set[SSAValue] = set()
        """Arguments that are not updated in place."""
        self.functional: set[Operation] = set()
        """Calls that give new values."""

    def allows(self, update: Update, storage: Storage, views: Sequence[Overload]) -> bool:
        """See `Policy`."""
        if storage.root in self.frozen or update.op in self.functional:
            return False
        dtype = dtype_of(element_type_of(update.old.type))
        return is_faithful(update.form, views, temporary=not storage.is_argument, dtype=dtype)

    def leaves(self, op: Operation) -> bool:
        """See `Policy`."""
        return not self.writes and isinstance(op, WriteOp) and root_of(op.buffer) in self.frozen

    def hoists(self, update: Update) -> bool:
        """See `Policy`. What is computed in front of a kernel of its own kind would still be fused behind it."""
        return not is_extern(update.form)

    def learn(self, plan: Plan) -> bool:
        """Give up memory that a plan cannot write everywhere in place; returns whether that is news."""
        known = len(self.frozen) + len(self.functional)
        for update in (*plan.disallowed, *plan.refused):
            if self.is_shared(plan, update):
                self.give_up(plan, update)
        return len(self.frozen) + len(self.functional) > known

    def give_up(self, plan: Plan, update: Update) -> None:
        """Leave the memory that an update would write alone."""
        if self.is_shared(plan, update):
            places = plan.aliases.places
            shaped = [argument for argument in plan.function.block.args if argument in places]
            self.frozen.update(a for a in shaped if places[a].storage is places[update.old].storage)
        else:
            self.functional.add(update.op)

    def is_shared(self, plan: Plan, update: Update) -> bool:
        """Whether an update is of memory that the caller gets back."""
        storage = plan.aliases.places[update.old].storage
        return storage.is_argument and storage.mutated
