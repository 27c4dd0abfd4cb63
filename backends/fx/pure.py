"""What the exported graph of a pure function returns."""

from __future__ import annotations

from torch import Tensor, fx
from xdsl.ir import BlockArgument, SSAValue

from vllm_ir.backends.fx.function import FunctionExporter
from vllm_ir.backends.fx.layout import tensor_of, with_all_strides, with_strides
from vllm_ir.backends.fx.tail import storages_of_inputs
from vllm_ir.dialects.vllm_ir.function import ReturnOp
from vllm_ir.dialects.vllm_ir.outputs import output_items
from vllm_ir.frontends.fx.storages import storage_key
from vllm_ir.frontends.fx.values import decode


def returned_values(exporter: FunctionExporter, returned: ReturnOp) -> object:
    """The outputs, each a tensor of its own with the strides of eager mode.

    Whoever calls the graph may put an output in the place of the input that it is, in any order: no output may be in
    the memory of an input, or of another output. Only an argument that did not change may be the output that it is.
    """
    exporter.builder.at(returned)
    taken = storages_of_inputs(exporter)
    aliased = exporter.function.io_map
    positions = [position for position, index in enumerate(output_items(returned)) if index is not None]
    nodes: dict[int, object] = {}
    # Whole arguments first: what is also returned of them is a piece more often than not, and cheaper to copy.
    for index in sorted(range(len(positions)), key=lambda index: positions[index] not in aliased):
        value = returned.operands[index]
        itself = isinstance(value, BlockArgument) and aliased.get(positions[index]) == value.index
        nodes[index] = exporter.values[value] if itself else _new_value(exporter, value, taken)
    return decode(returned.structure, [nodes[index] for index in range(len(positions))], str)


def _new_value(exporter: FunctionExporter, value: SSAValue, taken: set[int]) -> object:
    """The node of a value, in memory that is not yet `taken`."""
    node, builder = exporter.values[value], exporter.builder
    if not isinstance(node, fx.Node) or not isinstance(node.meta["val"], Tensor):
        return node
    node = with_strides(builder.emit, node, value.type)
    if storage_key(tensor_of(node)) in taken:
        copy = builder.copy(node, "it is returned as a new tensor")
        node = with_strides(builder.emit, copy, value.type)
    taken.add(storage_key(tensor_of(node)))
    return with_all_strides(builder.emit, node, value.type, trust_values=True)
