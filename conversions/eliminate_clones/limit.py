"""Plans of which only the first changes are carried out.

The changes of a function are the cuts of its plans, in the order of the rounds, then that its values are put into
memory at all, and then, in program order, what the plan without cuts changes: copies that are dropped, updates in
place, final writes of what is there already.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from vllm_ir.conversions.analysis.aliases import Storage
from vllm_ir.conversions.eliminate_clones.plan import Cuts, Plan, name_of, passed_on
from vllm_ir.conversions.eliminate_clones.policy import Policy
from vllm_ir.conversions.eliminate_clones.updates import Update
from vllm_ir.conversions.rewrites import Rewrites
from vllm_ir.dialects.torch.call import REASON
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.frontends.fx.torch_objects import Overload

_BEYOND = "it is beyond the limit of rewrites"


def take_cuts(cuts: Cuts, rewrites: Rewrites) -> Cuts:
    """The cuts that may be made. Each is right by itself: copies and the order of operations do not change values."""
    taken = Cuts()
    for copy, reason in cuts.keep.items():
        if rewrites.take(copy, f"stays: {reason}"):
            taken.keep[copy] = reason
    for (value, op), reason in cuts.save.items():
        if rewrites.take(op, f"gets a copy of {name_of(value)} before it: {reason}"):
            taken.save[value, op] = reason
    for (op, index), reason in cuts.copy.items():
        if rewrites.take(op, f"gets a copy of operand {index}: {reason}"):
            taken.copy[op, index] = reason
    for op, others in cuts.before.items():
        if rewrites.take(op, "is put behind operations that followed it"):
            taken.before[op] = others
    return taken


def take_updates(plan: Plan, rewrites: Rewrites) -> Set[Operation]:
    """What may be rewritten of all that a plan rewrites."""
    return {op for op, what in plan.rewritten.items() if rewrites.take(op, what)}


class FirstRewrites(Policy):
    """Nothing but some rewrites of a plan is allowed."""

    def __init__(self, allowed: Set[Operation]) -> None:
        """`allowed`: updates, and final writes that are not needed."""
        self._allowed = allowed

    def allows(self, update: Update, storage: Storage, views: Sequence[Overload]) -> bool:
        """See `Policy`."""
        return update.op in self._allowed

    def drops(self, write: WriteOp) -> bool:
        """See `Policy`."""
        return write in self._allowed


def keep_copies(plan: Plan, dropped: Set[Operation]) -> None:
    """Have the copies stay that a plan drops, but for those in `dropped`."""
    for op in plan.rewritten:
        if op not in dropped and passed_on(op) is not None:
            op.attributes[REASON] = StringAttr(_BEYOND)


def stop_at_cuts(function: FuncOp) -> None:
    """Say that a function of which only some cuts are made computes behind its final writes, if it has any."""
    if any(isinstance(op, WriteOp) for op in function.block.ops):
        function.properties.pop("functional", None)
