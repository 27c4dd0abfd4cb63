"""Operands that an operator writes, where they are views whose offset in memory is symbolic."""

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.virtualized import V


class CopyWrittenViews(CustomGraphPass):
    """Copies views at symbolic offsets before an operator writes them.

    Inductor turns a functional call into one that writes a copy of its operand, of the same strides and offset, but takes
    a symbolic offset for zero: the operator gets the beginning of the storage instead of the view. A copy made here has
    no offset, and Inductor makes no second one. Clones in the graph itself would not last: they count as no-ops.
    """

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=auto_functionalized):
            copies = {
                operand: _clone(graph, node, operand)
                for operand in node.all_input_nodes
                if _written(node, operand) and _at_symbolic_offset(operand)
            }
            node.kwargs = fx.map_arg(node.kwargs, lambda operand, copies=copies: copies.get(operand, operand))

    def uuid(self) -> object:
        """What cached artifacts of this pass depend on: its code."""
        return get_hash_for_files((__file__,))


def _written(node: fx.Node, operand: fx.Node) -> bool:
    op = node.args[0]
    names = [argument.name for argument in op._schema.arguments if argument.is_write]
    values = (node.kwargs.get(name) for name in names)
    return any(operand in value if isinstance(value, list | tuple) else operand is value for value in values)


def _at_symbolic_offset(operand: fx.Node) -> bool:
    value = operand.meta.get("val")
    return isinstance(value, torch.Tensor) and isinstance(value.storage_offset(), torch.SymInt)


def _clone(graph: fx.Graph, node: fx.Node, operand: fx.Node) -> fx.Node:
    with graph.inserting_before(node):
        clone = graph.call_function(torch.ops.aten.clone.default, (operand,))
    with V.fake_mode:
        clone.meta["val"] = torch.ops.aten.clone.default(operand.meta["val"])
    return clone
