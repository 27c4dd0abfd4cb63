"""Plans that Inductor can carry out."""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.eliminate_clones.cuts import apply_cuts
from vllm_ir.conversions.eliminate_clones.eliminate_clones import MAX_ROUNDS
from vllm_ir.conversions.eliminate_clones.plan import Cuts, Plan
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.tools.post_grad.lazy_reads import LazyReads
from vllm_ir.tools.post_grad.policy import InductorPolicy

LATE = "it would be computed behind the write to what it reads"


def plan_for_inductor(function: FuncOp, policy: InductorPolicy) -> tuple[Plan, set[SSAValue]]:
    """A plan without cuts, and the arguments that it does not write in place."""
    rounds = 0
    # Each round gives up memory, or an operation, or makes a copy.
    for _ in range(MAX_ROUNDS + 3 * sum(1 for _ in function.block.ops) + len(function.block.args)):
        plan = Plan(function, policy, last=rounds >= MAX_ROUNDS).run()
        if policy.learn(plan):
            continue
        if not plan.cuts:
            cuts = _late(plan, policy)
            if cuts is None:
                continue
            if policy.writes:
                _keep_apart(plan, policy, cuts)
            if not cuts:
                return plan, policy.frozen
            plan.cuts = cuts
        apply_cuts(function.block, plan.cuts)
        rounds += 1
    raise PassFailedException(f"@{function.sym_name.data}: no plan settles what Inductor would compute too late")


def _late(plan: Plan, policy: InductorPolicy) -> Cuts | None:
    """Copies of what Inductor would compute too late; None if some memory is better left alone."""
    cuts, learned = Cuts(), False
    lazy = LazyReads(plan).run()
    for decision in lazy.racing:
        policy.give_up(plan, decision.update)
        learned = True
    for value, decision in lazy.late:
        update = decision.update
        storage = decision.place.storage if decision.place is not None else None
        if isinstance(update.op, WriteOp) and not policy.writes:
            # The copy would be as large as what is written.
            policy.give_up(plan, update)
            learned = True
        elif storage is None or not storage.is_argument:
            cuts.copy[update.op, update.index] = LATE
        else:
            cuts.save[value, update.op] = LATE
    return None if learned else cuts


def _keep_apart(plan: Plan, policy: InductorPolicy, cuts: Cuts) -> None:
    """Let functional updates of memory that is written in the end have copies: Inductor would put them in place."""
    for update in plan.disallowed:
        if policy.is_shared(plan, update):
            cuts.copy[update.op, update.index] = "Inductor would overwrite it"
