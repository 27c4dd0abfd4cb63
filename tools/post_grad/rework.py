"""What both passes behind Inductor's own do with a graph that they have taken into the IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.backends.inductor.put_back import put_back
from vllm_ir.backends.inductor.reimport import Reimported
from vllm_ir.conversions.eliminate_clones.eliminate_clones import count_copied_updates
from vllm_ir.conversions.eliminate_clones.plan import Plan, passed_on
from vllm_ir.conversions.eliminate_clones.rewrite import rewrite


@dataclass(frozen=True)
class Rework:
    """What was done to a graph."""

    copied: int
    """Operands of calls in value form that are written on copies."""
    reasons: Mapping[fx.Node, str]
    """Nodes that copy a tensor, and why."""


def carry_out(
    plan: Plan, graph: fx.Graph, reimported: Reimported, fake_mode: FakeTensorMode, *, changed: bool = False
) -> Rework:
    """Put a plan into the graph that its function was imported from, if there is anything in it.

    `changed`: the function does not say any more what the graph says.
    """
    copied = count_copied_updates(plan)
    if not changed and not plan.written and not any(passed_on(op) is not None for op in plan.position):
        return Rework(copied, {})
    rewrite(plan)
    return Rework(copied, put_back(graph, reimported, fake_mode))
