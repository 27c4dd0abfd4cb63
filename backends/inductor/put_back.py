"""The body of a graph that Inductor is working on, replaced by what passes have made of it.

Operations that the passes left alone keep their nodes, with all that Inductor has noted on them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import cast

from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from vllm_ir.backends.fx.function import FunctionExporter, GraphBuilder
from vllm_ir.backends.fx.metas import propagating
from vllm_ir.backends.fx.tail import Results
from vllm_ir.backends.inductor.materialize import materialize
from vllm_ir.backends.inductor.prepare import prepare_node
from vllm_ir.backends.inductor.reimport import Reimported
from vllm_ir.dialects.torch.call import REASON
from vllm_ir.dialects.vllm_ir.memory import ReadOp, ViewOp, WriteOp
from vllm_ir.frontends.fx.schemas import Target
from vllm_ir.frontends.fx.torch_objects import map_nodes
from vllm_ir.frontends.fx.values import decode, is_sequence


def put_back(graph: fx.Graph, reimported: Reimported, fake_mode: FakeTensorMode) -> dict[fx.Node, str]:
    """Make `graph` do what the function does that it was imported as; returns the copies it makes, and why.

    Copies that have a reason are opaque: what they read is read where they stand, and not in a kernel that writes it.
    """
    reimported.function.properties.pop("functional", None)  # final writes happen where they stand
    output = graph.output_node()
    old = [node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    builder = _BodyBuilder(graph, fake_mode)
    body = _Body(reimported, builder)
    terminator = reimported.function.terminator
    with graph.inserting_before(output), propagating(fake_mode):
        tail = body.body()
        results = Results(body, tail)
        returned = [results.nodes.get(value, body.values.get(value)) for value in terminator.operands]
    output.args = (
        cast("tuple[fx.Node, ...]", tuple(cast("list[object]", decode(terminator.structure, returned, str)))),
    )
    for node in reversed(old):
        if node not in body.kept:
            graph.erase_node(node)
    for node in builder.made:
        prepare_node(node)
    return builder.copies


class _BodyBuilder(GraphBuilder):
    """Adds nodes to a graph that is there already."""

    def __init__(self, graph: fx.Graph, mode: FakeTensorMode) -> None:
        super().__init__(mode, opaque=True)
        self.graph = graph
        self.made: list[fx.Node] = []

    def emit(self, target: Target, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None) -> fx.Node:
        """A call node; see `GraphBuilder`."""
        node = super().emit(target, args, kwargs)
        self.made.append(node)
        return node

    def copy(self, node: fx.Node, reason: str) -> fx.Node:
        """An opaque copy."""
        copy = self.emit(materialize, (node,))
        self.copies[copy] = reason
        return copy


class _Body(FunctionExporter):
    """Exports a function into the graph that it came from."""

    def __init__(self, reimported: Reimported, builder: _BodyBuilder) -> None:
        owner = builder.graph.owning_module or nn.Module()
        super().__init__(reimported.function, builder, owner, {})
        self.origin = reimported
        self.kept: set[fx.Node] = set()
        self.values.update(zip(self.function.block.args, reimported.sources, strict=True))

    def export(self, op: Operation) -> None:
        """Export one operation, by its own node if it has one."""
        node = self.origin.nodes.get(op)
        if isinstance(reason := op.attributes.get(REASON), StringAttr):
            self._copy(op, reason.data)
        elif node is None or isinstance(op, ViewOp | ReadOp | WriteOp):
            super().export(op)
        else:
            self._keep(op, node)

    def _read(self, op: ReadOp) -> None:
        # The plan has made sure that nobody sees a later write through what is read here.
        self.values[op.result] = self.node(op.buffer)

    def _copy(self, op: Operation, reason: str) -> None:
        self.builder.at(op)
        self.values[op.results[0]] = self.builder.copy(self.node(op.operands[0]), reason)

    def _keep(self, op: Operation, node: fx.Node) -> None:
        """Move a node here, and let it take the operands that the operation has now."""
        new = {old: self._operand(now) for old, now in zip(self.origin.operands[op], op.operands, strict=True)}

        def now(argument: fx.Node) -> object:
            return self._replaced(argument, self.origin.values.get(argument), new)

        if any(now(argument) is not argument for argument in node.all_input_nodes):  # setting them is slow
            node.args, node.kwargs = map_nodes((node.args, node.kwargs), now)
        self.builder.graph.output_node().prepend(node)
        self.kept.add(node)
        self._bind(op, node, node.meta.get("val"), iter(op.results))

    def _replaced(self, argument: fx.Node, value: object, new: dict[SSAValue, object]) -> object:
        if isinstance(value, SSAValue):
            return new.get(cast(SSAValue, value), argument)
        return [self._replaced(argument, item, new) for item in value] if is_sequence(value) else argument

    def _bind(self, op: Operation, node: fx.Node, value: object, results: Iterator[SSAValue]) -> None:
        """Connect results with the node, or with the nodes that take it apart, which move along."""
        if not is_sequence(value):
            if (result := next(results, None)) is not None:
                self.values[result] = None if value is None else node
            return
        items: dict[object, fx.Node] = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        for index, item in enumerate(value):
            if (child := items.get(index)) is None:
                for _ in _leaves(item):
                    next(results, None)
                continue
            self.builder.graph.output_node().prepend(child)
            self.kept.add(child)
            self._bind(op, child, item, results)


def _leaves(value: object) -> Iterator[object]:
    """Leaves of nested lists and tuples."""
    if is_sequence(value):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
