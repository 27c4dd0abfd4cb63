"""`example-fuse-add-norm`: an addition and the norm of its sum become `vllm_ir.fused_add_rms_norm`."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import Float32Type, IntegerAttr, ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern, op_type_rewrite_pattern

from vllm_ir.dialects.torch import CallOp
from vllm_ir.dialects.vllm_ir.norms import FusedAddRmsNormOp, RmsNormOp


@dataclass(frozen=True)
class FuseAddNormPass(ModulePass):
    """Fuse wherever nobody can notice. Runs between `functionalize` and `lower`."""

    name = "example-fuse-add-norm"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every function of the module."""
        PatternRewriteWalker(FuseAddNorm(), apply_recursively=False).rewrite_module(op)


class FuseAddNorm(RewritePattern):
    """`rms_norm(add(x, residual))` becomes `fused_add_rms_norm(x, residual)`, whose second result is the sum."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: RmsNormOp, rewriter: PatternRewriter, /) -> None:
        """Fuse one norm with the addition in front of it, if there is one."""
        add = op.x.owner
        if not isinstance(add, CallOp) or not _is_plain_sum(add) or not _same_type(*add.operands, *add.results):
            return
        # The fused op takes the place of the norm, so no other reader of the sum may come before it.
        readers = {use.operation for use in add.results[0].uses} - {op}
        if add.parent is not op.parent or not all(_is_behind(op, reader) for reader in readers):
            return
        weight = [] if op.weight is None else [op.weight]
        fused = FusedAddRmsNormOp.create(
            operands=[*add.operands, *weight],
            result_types=[op.result.type, add.results[0].type],
            properties={name: value for name, value in op.properties.items() if name != "donated"},
        )
        fused.location = op.location
        normed, residual = fused.results
        normed.name_hint, residual.name_hint = op.result.name_hint, add.results[0].name_hint
        rewriter.replace(op, fused, [normed])
        rewriter.replace(add, [], [residual])


def _is_plain_sum(call: CallOp) -> bool:
    """Whether a call adds two tensors, neither of them multiplied."""
    alpha = call.kwargs.data.get("alpha") if call.kwargs else None
    one = alpha is None or (isinstance(alpha, IntegerAttr) and alpha.value.data == 1)
    return call.target == "aten.add.Tensor" and len(call.operands) == 2 and one


def _same_type(*values: SSAValue) -> bool:
    """Whether all are float32 tensors of one type.

    The fused op adds in float32 and does not round the sum before it takes the norm. A narrower sum would be rounded in
    between, and operands of different shapes would be broadcast.
    """
    first = values[0].type
    return (
        isinstance(first, TensorType)
        and isinstance(first.element_type, Float32Type)
        and all(value.type == first for value in values)
    )


def _is_behind(op: Operation, reader: Operation) -> bool:
    """Whether `reader` is behind `op` in its block, or in a region of what is."""
    block = op.parent
    outer = block.find_ancestor_op_in_block(reader) if isinstance(block, Block) else None
    return outer is not None and op.is_before_in_block(outer)
