"""Outputs of a graph whose writes are not put back."""

from __future__ import annotations

from collections.abc import Mapping, Set

from torch import fx
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import SSAValue

from vllm_ir.backends.inductor.reimport import Reimported
from vllm_ir.dialects.torch.arguments import TupleAttr
from vllm_ir.dialects.vllm_ir.function import ReturnOp, root_of
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.frontends.fx.values import operand_reference


def restore_outputs(reimported: Reimported, outputs: Mapping[fx.Node, int], frozen: Set[SSAValue]) -> None:
    """Return the final values of `frozen` arguments again, as the outputs that they were, instead of writing them."""
    function = reimported.function
    returned: ReturnOp = function.terminator
    structure = returned.structure
    if not isinstance(structure, TupleAttr):
        raise TypeError(f"a graph of Inductor returns {structure}, not a tuple")
    items, operands = list(structure.items.data), list(returned.operands)
    node_of: dict[SSAValue, fx.Node] = dict(zip(function.block.args, reimported.sources, strict=True))
    for op in list(function.block.ops):
        if isinstance(op, WriteOp) and (root := root_of(op.buffer)) in frozen:
            items[outputs[node_of[root]]] = operand_reference(len(operands))
            operands.append(op.value)
            op.detach()
            op.erase()
    returned.operands = operands
    returned.structure = TupleAttr(ArrayAttr(items))
    function.update_type()
