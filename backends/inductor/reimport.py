"""A graph that Inductor is working on, taken into the IR and back."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from xdsl.dialects.builtin import ModuleOp, NameLoc, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from vllm_ir.backends.fx.export import main_function
from vllm_ir.backends.inductor.aliases import output_nodes
from vllm_ir.dialects.vllm_ir.function import DONATED, FuncOp
from vllm_ir.dialects.vllm_ir.memory import ReadOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.importer import import_with_values
from vllm_ir.frontends.fx.normalize import Normalized
from vllm_ir.frontends.fx.torch_internals import lazy_module
from vllm_ir.frontends.fx.types import TypeCache

aten = torch.ops.aten


@dataclass(frozen=True)
class Reimported:
    """A graph as a module, and which node each operation and value comes from."""

    module: ModuleOp
    nodes: Mapping[Operation, fx.Node]
    """The node of each operation that the graph gave; those that passes add have none."""
    operands: Mapping[Operation, tuple[SSAValue, ...]]
    """The operands that these operations had at first."""
    values: Mapping[fx.Node, object]
    """What each node was imported as."""
    sources: Sequence[fx.Node]
    """The nodes that the arguments of the function stand for: placeholders and attributes."""

    @property
    def function(self) -> FuncOp:
        """The function that the graph has become."""
        return main_function(self.module)


def reimport(
    graph: fx.Graph, writes: Mapping[int, fx.Node], donated: Collection[fx.Node], fake_mode: FakeTensorMode
) -> Reimported:
    """The graph as a module; `meta["val"]` of its nodes tells types and shared memory.

    Output `i` for each `i` in `writes` is not returned but written to that placeholder at the end. Constants are
    arguments, since nobody needs to know what they hold. The memory of placeholders in `donated` may be overwritten.
    """
    constants = {node for node in graph.find_nodes(op="get_attr") if _is_constant(graph, node)}
    sources = [node for node in graph.nodes if node.op == "placeholder" or node in constants]
    inputs = tuple(node.meta["val"] for node in sources)
    with _writing(graph, writes):
        normalized = Normalized(_owner(graph), inputs, (), (), {}, fake_mode)
        module, values = import_with_values(normalized, constants)
    by_name = {node.name: node for node in graph.nodes}
    function = main_function(module)
    nodes: dict[Operation, fx.Node] = {}
    for op in function.block.ops:
        if isinstance(op.location, NameLoc) and (node := by_name.get(op.location.desc.data)) is not None:
            nodes[op] = node
    operands = {op: tuple(op.operands) for op in nodes}
    _donate(function, [index for index, node in enumerate(sources) if node in donated], inputs)
    return Reimported(module, nodes, operands, values, sources)


def _donate(function: FuncOp, positions: Sequence[int], inputs: Sequence[object]) -> None:
    """Make arguments buffers that are read once, and mark them as given away."""
    attributes = [function.argument_attributes(index) for index in range(len(function.block.args))]
    for index in positions:
        argument = function.block.args[index]
        attributes[index][DONATED] = UnitAttr()
        if isinstance(argument.type, BufferType):
            continue
        kind = argument.type
        buffer = Rewriter.replace_value_with_new_type(argument, TypeCache().buffer(cast(Tensor, inputs[index])))
        read = ReadOp.create(operands=[buffer], result_types=[kind])
        function.block.insert_op_before(read, next(iter(function.block.ops)))
        buffer.replace_uses_with_if(read.result, lambda use, read=read: use.operation is not read)
    function.set_argument_attributes(attributes)
    function.update_type()


@contextmanager
def _writing(graph: fx.Graph, writes: Mapping[int, fx.Node]) -> Generator[None]:
    """Meanwhile, the graph writes those outputs at its end and returns None in their place."""
    output = graph.output_node()
    before, returned = output.args, list[object](output_nodes(graph))
    added: list[fx.Node] = []
    with graph.inserting_before(output):
        for index, destination in writes.items():
            written = graph.call_function(aten.copy_.default, (destination, cast(fx.Node, returned[index])))
            written.meta["val"] = destination.meta["val"]
            returned[index] = None
            added.append(written)
    output.args = (cast("tuple[fx.Node, ...]", tuple(returned)),)
    try:
        yield
    finally:
        output.args = before
        for node in added:
            graph.erase_node(node)


def _owner(graph: fx.Graph) -> fx.GraphModule:
    owner = graph.owning_module
    if isinstance(owner, fx.GraphModule) and owner.graph is graph:
        return owner
    return lazy_module(owner or nn.Module(), graph)


def _is_constant(graph: fx.Graph, node: fx.Node) -> bool:
    owner = graph.owning_module
    return node.op == "get_attr" and owner is not None and isinstance(fetch_attribute(owner, str(node.target)), Tensor)
