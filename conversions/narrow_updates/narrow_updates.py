"""`narrow-updates`: parts of a tensor are updated and read in the tensor itself.

A write through nested views comes as a part that is cut out, updated, and put back, once for each view. On a device
that shares memory between an argument and a result, each of these is a copy of the part. This pass makes one update of
the whole tensor of it, which needs none. Reads of parts that later updates leave alone come from the newest version of
the tensor, so that no older one has to be kept.

What a value is does not change, and neither does the order of operations with effects. Operations that nothing depends
on are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from vllm_ir.conversions.narrow_updates.analysis import Analysis
from vllm_ir.conversions.narrow_updates.emission import Emission
from vllm_ir.conversions.narrow_updates.order import Needed
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.dialects.stablehlo import DynamicUpdateSliceOp, ScatterOp


@dataclass(frozen=True)
class NarrowUpdatesPass(LimitedPass):
    """Update and read parts of tensors in the tensors themselves.

    With `limit`, that many operations are changed: of each block first its end, for which the operations are put in the
    order of what they need, then views, updates of parts and parts that are put back, in program order, then gathers.
    """

    name = "narrow-updates"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite the functions of StableHLO in a module, and the regions in them."""
        rewrites = self.start()
        for function in op.body.block.ops:
            if isinstance(function, func.FuncOp):
                for block in list(function.body.blocks):
                    _narrow(block, rewrites)


def _narrow(block: Block, rewrites: Rewrites) -> None:
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                _narrow(inner, rewrites)
    if block.last_op is None or not any(isinstance(op, DynamicUpdateSliceOp | ScatterOp) for op in block.ops):
        return
    if not rewrites.take(block.last_op, "ends a block whose operations are put in the order of what they need"):
        return
    needed = Needed.of(block)
    emission = Emission(needed, Analysis(needed.ops, rewrites), rewrites)
    for op in reversed(list(block.ops)):
        op.detach()
        op.erase(safe_erase=False)
    for op in list(emission.block.ops):
        op.detach()
        block.add_op(op)
