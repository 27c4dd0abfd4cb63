"""The pass behind Inductor's own: functional updates of the caller's tensors become writes in place.

Inductor works best on functional graphs and is wrong about some that write. So it gets the values that its arguments
have at the end as further outputs, and runs all its passes on them. Then this pass takes the graph as it is by then
into the IR, turns those outputs into writes, decides by `eliminate-clones` which updates happen in place, and puts the
graph back with those writes that Inductor is known to keep. A tensor of which that is not true everywhere stays an
output.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensorMode
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.fx.export import SplitGraph
from vllm_ir.backends.inductor.reimport import reimport
from vllm_ir.backends.inductor.torch_internals import current_fake_mode
from vllm_ir.conversions.eliminate_clones.eliminate_clones import EliminateClonesPass, count_updates
from vllm_ir.conversions.eliminate_clones.updates import copied_operand
from vllm_ir.conversions.functionalize import FunctionalizePass
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.fx.importer import collector_paused
from vllm_ir.tools.cache_key import versions
from vllm_ir.tools.post_grad.planning import plan_for_inductor
from vllm_ir.tools.post_grad.policy import InductorPolicy
from vllm_ir.tools.post_grad.results import restore_outputs
from vllm_ir.tools.post_grad.rework import Rework, carry_out
from vllm_ir.tools.reports import Outcome, copies_in

if TYPE_CHECKING:
    from vllm_ir.tools.validation.validator import Validator

_MARK = "vllm_ir_writes"


class WriteInPlace(CustomGraphPass):
    """Writes final values into the arguments of the graph that it was made for; other graphs it leaves alone."""

    def __init__(
        self, writes: Mapping[int, int], donated: Sequence[int], updates: int, validator: Validator | None = None
    ) -> None:
        """`writes` gives, for each output that is the final value of an argument, the number of the placeholder.

        The memory of the placeholders in `donated` may be overwritten. `updates` is the number of operands of calls in
        value form. `validator` compares what the graph does before and behind the pass.
        """
        self.writes = dict(writes)
        self.donated = tuple(donated)
        self.updates = updates
        self.validator = validator
        self.outcome: Outcome | None = None
        """What came of it; None until the pass has run: it does not for a graph that Inductor has in its cache."""

    def mark(self, graph: fx.Graph) -> None:
        """Make a graph the one of this pass, before Inductor works on it."""
        graph.output_node().meta[_MARK] = id(self)

    def __call__(self, graph: fx.Graph) -> None:
        if graph.output_node().meta.get(_MARK) == id(self):
            self.apply(graph, current_fake_mode())

    def apply(self, graph: fx.Graph, fake_mode: FakeTensorMode) -> Outcome:
        """Do the work on a graph whose fake values are in `fake_mode`."""
        start = time.perf_counter()
        with collector_paused():
            rework = self._run(graph, fake_mode)
        seconds = time.perf_counter() - start
        self.outcome = Outcome(self.updates, rework.copied, list(copies_in(graph, rework.reasons, fused=True)), seconds)
        return self.outcome

    def _run(self, graph: fx.Graph, fake_mode: FakeTensorMode) -> Rework:
        placeholders = graph.find_nodes(op="placeholder")
        writes = {i: placeholders[p] for i, p in self.writes.items()}
        reimported = reimport(graph, writes, {placeholders[p] for p in self.donated}, fake_mode)
        FunctionalizePass().apply(Context(), reimported.module)
        plan, frozen = plan_for_inductor(reimported.function, InductorPolicy())
        restore_outputs(reimported, {node: i for i, node in writes.items()}, frozen)
        before = None if self.validator is None else reimported.module.clone()
        rework = carry_out(plan, graph, reimported, fake_mode)
        if self.validator is not None and before is not None:
            self.validator.check(EliminateClonesPass(), before, reimported.module)
        return rework

    def uuid(self) -> object:
        """What cached artifacts of this pass depend on: its code, and what it writes."""
        return versions(), tuple(sorted(self.writes.items())), self.donated


def write_in_place(module: ModuleOp, exported: SplitGraph, validator: Validator | None = None) -> WriteInPlace | None:
    """The pass for the functional graph of a module, which it marks; None if there is nothing to do for it."""
    updates = sum(count_updates(function) for function in module.body.block.ops if isinstance(function, FuncOp))
    if not updates and not exported.finals and not any(copied_operand(op) is not None for op in module.walk()):
        return None
    hook = WriteInPlace(exported.finals, exported.donated, updates, validator)
    hook.mark(exported.core.graph)
    return hook
