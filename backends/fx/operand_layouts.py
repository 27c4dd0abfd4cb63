"""Operands of calls as the operators expect them: laid out as eager lays them out, where that can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx
from xdsl.ir import SSAValue

from vllm_ir.backends.fx.errors import OperatorError
from vllm_ir.backends.fx.layout import Emit, has_strides, tensor_of, with_all_strides, with_strides
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, byte_size, element_type_of, sizes_of
from vllm_ir.frontends.fx.torch_objects import Overload, map_nodes
from vllm_ir.frontends.fx.types import is_shaped

aten = torch.ops.aten


class OperandLayouts:
    """Puts the operands of calls into the layouts that their types state; `values` are the nodes known so far."""

    def __init__(self, emit: Emit, values: Mapping[SSAValue, object]) -> None:
        self.emit = emit
        self.values = values

    def with_known_strides(
        self, op: CallOp | ViewOp, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Give a view as another element type, which looks at strides also where they lead nowhere, a copy then.

        Those of a value are others in fake tensors than in real ones.
        """
        if not op.operands or not op.results or isinstance(base := op.operands[0].type, BufferType):
            return args, kwargs
        if not is_shaped(base):
            return args, kwargs
        old, new = byte_size(element_type_of(base)), byte_size(element_type_of(op.results[0].type))
        sizes, node = sizes_of(base), self.values.get(op.operands[0])
        free = 0 in sizes or sizes[-1:] == (1,) or (new > old and 1 in sizes)
        if old == new or not free or not isinstance(node, fx.Node):
            return args, kwargs
        copy = self.emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
        return map_nodes((args, kwargs), lambda other: copy if other is node else other)

    def has_other_layout(self, op: CallOp | ViewOp) -> bool:
        """Whether the value that is viewed has other strides here than in eager mode."""
        kind, node = op.operands[0].type, self.values.get(op.operands[0])
        return not isinstance(kind, BufferType) and isinstance(node, fx.Node) and not has_strides(tensor_of(node), kind)

    def view_of_other_layout(
        self, op: CallOp | ViewOp, target: Overload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> fx.Node | None:
        """A view that eager takes, of the layout that the value happens to have here; None if that is not possible."""
        if element_type_of(op.results[0].type) != element_type_of(op.operands[0].type):
            return None
        try:
            return self.emit(target, args, kwargs)
        except OperatorError:
            return None

    def restride(
        self, op: CallOp | ViewOp, args: tuple[object, ...], kwargs: dict[str, object], *, free: bool = False
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Give an operator that looks at memory its operands as eager lays them out.

        With `free`, strides count also where they lead nowhere: PyTorch compares those of what branches return, which
        follow from the operands'.
        """
        fixed = self.restrided(op, [self.values.get(operand) for operand in op.operands], free=free)
        return map_nodes((args, kwargs), lambda node: fixed.get(node, node))

    def restrided(self, op: CallOp | ViewOp, nodes: Sequence[object], *, free: bool = False) -> dict[fx.Node, fx.Node]:
        """For the node of each tensor operand, one with the same value and the strides of the operand's type."""
        fixed: dict[fx.Node, fx.Node] = {}
        for operand, node in zip(op.operands, nodes, strict=True):
            if not isinstance(node, fx.Node) or isinstance(operand.type, BufferType):
                continue
            if isinstance(node.meta["val"], Tensor):
                fixed[node] = with_strides(self.emit, node, operand.type)
                if free:
                    fixed[node] = with_all_strides(self.emit, fixed[node], operand.type, trust_values=True)
        return fixed
