"""`PostGradPass`: the pipeline as a pass of anybody's Inductor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from vllm_ir.backends.inductor.reimport import reimport
from vllm_ir.backends.inductor.torch_internals import current_fake_mode
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects
from vllm_ir.frontends.fx.importer import collector_paused
from vllm_ir.frontends.ops.priority import using_inductor, wants_batch_invariance
from vllm_ir.tools.cache_key import versions
from vllm_ir.tools.pipelines import MEMORY_PASS, run_passes, split_passes
from vllm_ir.tools.post_grad.planning import plan_for_inductor
from vllm_ir.tools.post_grad.policy import InductorPolicy
from vllm_ir.tools.post_grad.rework import carry_out
from vllm_ir.tools.providers import IrOpPriorityConfig, SizeRanges, ops
from vllm_ir.tools.reports import rejected_impls, selected_impls

DEFAULT_PASSES = "functionalize,lower{decompose=true},eliminate-clones"
"""What is lowered here is not decomposed by Inductor any more."""


class PostGradPass(CustomGraphPass):
    """Runs a pass pipeline on the graphs that Inductor compiles, behind its own passes after gradients.

    For `torch._inductor.config.post_grad_custom_post_pass`, alone or in a list with other passes. Of a graph from
    `torch.compile`'s default backend, which ends in copies to the arguments that the program writes, it makes one that
    writes them in place wherever that is proven right and Inductor keeps it so; operations of `vllm_ir` are lowered to
    the implementations of highest priority.

    Attributes:
        selected_impls: `{op: {node: provider}}` of the graph that it ran on last.
        rejected_impls: `{op: {node: [(provider, reason)]}}` of the same.
    """

    def __init__(
        self, passes: str = DEFAULT_PASSES, *, ir_op_priority: Mapping[str, Sequence[str] | SizeRanges] | None = None
    ) -> None:
        """Make a pass.

        Args:
            passes: a pipeline as for `torch.compile(backend="vllm_ir")`.
            ir_op_priority: `{op: [providers]}`, on top of the priorities in force when a graph is compiled.

        Raises:
            ValueError: the pipeline is malformed or does not end in `eliminate-clones`, or a priority list is
                malformed.
        """
        self.values, memory = split_passes(passes)
        if memory != MEMORY_PASS:
            raise ValueError(f"pass pipeline {passes!r}: what is put back into Inductor's graph ends in {MEMORY_PASS}")
        self.priorities = IrOpPriorityConfig(**(ir_op_priority or {}))
        self.selected_impls: dict[str, dict[str, str]] = {}
        self.rejected_impls: dict[str, dict[str, list[tuple[str, str]]]] = {}

    def __call__(self, graph: fx.Graph) -> None:
        fake_mode = current_fake_mode()
        with collector_paused(), using_inductor(True), self.priorities.apply():
            reimported = reimport(graph, {}, (), fake_mode)
            lowers = any(op.has_trait(OperandEffects) for op in reimported.function.block.ops)
            run_passes(reimported.module, self.values, check=False)
            self.selected_impls, self.rejected_impls = (
                selected_impls(reimported.module),
                rejected_impls(reimported.module),
            )
            plan, _ = plan_for_inductor(reimported.function, InductorPolicy(writes=True))
            carry_out(plan, graph, reimported, fake_mode, changed=lowers)

    def uuid(self) -> object:
        """What cached artifacts of this pass depend on: its code, its options, the implementations it may choose."""
        with using_inductor(True), self.priorities.apply():
            named = {name: ops[name].get_priority() for name in ops}
            chosen = tuple(
                (name, provider, ops[name].impls[provider].uuid())
                for name, providers in named.items()
                for provider in providers
            )
        return versions(), self.values, chosen, wants_batch_invariance()
