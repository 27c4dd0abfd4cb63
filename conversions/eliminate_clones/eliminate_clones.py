"""`eliminate-clones`: values become memory again, and updates are written in place where nobody can notice.

A functional function says what is computed, as if every update were made on a copy. This pass decides for each update
whether the copy is needed: it turns scatters, final writes and calls in value form into writes to the caller's memory,
or to that of values with no other use, and puts a copy, with the reason, where somebody else still needs what would be
overwritten. Copies that the program made itself are dropped by the same proof.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, i64
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.eliminate_clones.cuts import apply_cuts
from vllm_ir.conversions.eliminate_clones.limit import FirstRewrites, keep_copies, stop_at_cuts, take_cuts, take_updates
from vllm_ir.conversions.eliminate_clones.plan import Plan
from vllm_ir.conversions.eliminate_clones.policy import Policy
from vllm_ir.conversions.eliminate_clones.rewrite import rewrite
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.dialects.torch.call import REASON, CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp

CLONES = "vllm_ir.clones"
"""Attribute of the module: how many calls in value form there were by operand (`inserted`), and are now in place."""

MAX_ROUNDS = 8
"""After so many plans that had to be changed, conflicts are settled by copies alone."""


@dataclass(frozen=True)
class EliminateClonesPass(LimitedPass):
    """Write updates in place where that cannot be noticed, on copies elsewhere.

    With `limit`, that many changes are made: of each function first the copies and moves that its plan needs, then
    copies that are dropped and updates in place, in program order; see `limit.py`.
    """

    name = "eliminate-clones"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every functional function of the module."""
        rewrites = self.start()
        inserted = removed = 0
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None and rewrites.has(1):
                counts = eliminate_clones(function, rewrites)
                inserted, removed = inserted + counts[0], removed + counts[1]
        if inserted:
            counts = {"inserted": IntegerAttr(inserted, i64), "removed": IntegerAttr(removed, i64)}
            op.attributes[CLONES] = DictionaryAttr(counts)


def eliminate_clones(function: FuncOp, rewrites: Rewrites) -> tuple[int, int]:
    """Rewrite one function; returns how many operands calls in value form had, and how many are written in place."""
    inserted = count_updates(function)
    plan = _limited_plan(function, rewrites)
    if plan is None:
        stop_at_cuts(function)
        return inserted, 0
    removed = inserted - count_copied_updates(plan)
    rewrite(plan)
    return inserted, removed


def _limited_plan(function: FuncOp, rewrites: Rewrites) -> Plan | None:
    """A plan of no more changes than there may be; None if these are used up by its cuts."""
    plan = plan_function(function, Policy(), rewrites)
    if plan is None or not rewrites.take(function.terminator, f"ends @{function.sym_name.data}, put into memory"):
        return None
    allowed = take_updates(plan, rewrites)
    if len(allowed) == len(plan.rewritten):
        return plan
    keep_copies(plan, allowed)
    return plan_function(function, FirstRewrites(allowed), Rewrites())


def count_updates(function: FuncOp) -> int:
    """Operands of calls in value form, each by meaning a copy that is written."""
    return sum(len(op.update_indices) for op in function.block.ops if isinstance(op, CallOp))


def count_copied_updates(plan: Plan) -> int:
    """How many operands of calls in value form are not written where they are."""
    return sum(
        decision.place is None or _is_copy(op, decision.update.index)
        for op, decisions in plan.decisions.items()
        if isinstance(op, CallOp) and op.updates is not None
        for decision in decisions
    )


def plan_function(function: FuncOp, policy: Policy, rewrites: Rewrites) -> Plan | None:
    """A plan without cuts for a function, which is changed by the cuts of those before; None if not all may be made."""
    rounds = 0
    limit = MAX_ROUNDS + 2 + sum(1 for _ in function.block.ops)
    while (plan := Plan(function, policy, last=rounds >= MAX_ROUNDS).run()).cuts:
        if rounds > limit:
            raise PassFailedException(f"@{function.sym_name.data}: conflicts are left when everything is copied")
        taken = take_cuts(plan.cuts, rewrites)
        apply_cuts(function.block, taken)
        if taken != plan.cuts:
            return None
        rounds += 1
    return plan


def _is_copy(op: CallOp, index: int) -> bool:
    """Whether an operand is a copy that was made for this call."""
    producer = op.operands[index].owner
    return isinstance(producer, CallOp) and REASON in producer.attributes
