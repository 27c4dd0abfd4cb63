"""Which outputs of a graph share memory, seen from its nodes."""

import operator
from collections.abc import Iterator, Sequence
from typing import cast

from torch import fx

from vllm_ir.backends.inductor.torch_internals import storage_of
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import is_overload, schema_of


def output_nodes(graph: fx.Graph) -> Sequence[object]:
    """What a graph with a flat output returns, in order."""
    (returned,) = graph.output_node().args
    return returned if isinstance(returned, list | tuple) else (returned,)


def memory_root(node: fx.Node) -> fx.Node:
    """The node that allocated the memory of `node`'s value: a placeholder, or an operator with a fresh result.

    Whatever may share memory counts as sharing it: views, as the schema or the fake values tell. The schema alone does
    not tell of `_unsafe_view`, the values alone are out of date where a pass has changed the graph.
    """
    while (source := _shared_operand(node)) is not None:
        node = source
    return node


def viewed_operand(node: fx.Node) -> fx.Node | None:
    """What a node is a view of, as its operator's schema tells, or a piece of; None for all others."""
    source = cast(fx.Node, node.args[0]) if node.target is operator.getitem else node
    if not is_overload(source.target) or not op_info(source.target).is_view:
        return None
    return cast(fx.Node, source.args[0])


def _shared_operand(node: fx.Node) -> fx.Node | None:
    """The operand whose memory the result of `node` may share."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        # Pieces of `split` lead to what was split; the results of other operators have memory of their own.
        return _shared_operand(cast(fx.Node, node.args[0]))
    for operand in _aliased_operands(node):
        return operand
    storage = storage_of(node)
    for operand in node.all_input_nodes:
        if storage is not None and storage_of(operand) == storage:
            return operand
    return None


def _aliased_operands(node: fx.Node) -> Iterator[fx.Node]:
    if not is_overload(node.target):
        return
    # `split` and `unbind` annotate only the argument (`Tensor(a -> *)`), so the results' annotations do not decide.
    for position, argument in enumerate(schema_of(node.target).arguments):
        if argument.alias_info is None:
            continue
        value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(value, fx.Node):
            yield value
