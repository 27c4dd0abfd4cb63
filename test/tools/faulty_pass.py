"""A pass with a fault, for `validate.mlir`: it swaps the operands of subtractions."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.tools.pipelines import PASSES


@dataclass(frozen=True)
class FaultyPass(ModulePass):
    """Swaps what is subtracted."""

    name = "faulty"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Change every subtraction in `op`."""
        for call in op.walk():
            if isinstance(call, CallOp) and call.target == "aten.sub.Tensor":
                call.operands = list(call.operands)[::-1]


PASSES["faulty"] = lambda: FaultyPass
