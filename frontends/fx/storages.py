"""Which values of a graph are buffers: memory that is written, or whose identity the caller can see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor, fx
from torch._ops import OpOverload

from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.ops import get_op


def storage_key(tensor: Tensor) -> int:
    """Identity of the storage; equal for tensors that share memory."""
    return tensor.untyped_storage()._cdata


def tensors_in(value: object) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def nodes_in(argument: object) -> Iterator[fx.Node]:
    """All nodes in nested arguments, with repetitions."""
    if isinstance(argument, fx.Node):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in argument:
            yield from nodes_in(item)
    elif isinstance(argument, dict):
        for item in argument.values():
            yield from nodes_in(item)
    elif isinstance(argument, slice):
        yield from nodes_in((argument.start, argument.stop, argument.step))


def argument_of(node: fx.Node, position: int, name: str) -> object:
    """The argument of a call node at `position` of its schema, wherever it was passed; None if left out."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name)


def _keys(argument: object) -> Iterator[int]:
    for node in nodes_in(argument):
        for tensor in tensors_in(node.meta.get("val")):
            yield storage_key(tensor)


def _touched(node: fx.Node, target: OpOverload) -> Iterator[int]:
    """Storages that the call writes, or that are donated to it."""
    info = op_info(target)
    for position in info.writes:
        yield from _keys(argument_of(node, position, info.arguments[position].name))
    if (op := get_op(target)) is not None and target is op.maybe_inplace:
        for position in op.activation_indices:
            yield from _keys(argument_of(node, position, info.arguments[position].name))


def _observable(placeholders: Iterable[fx.Node], output: fx.Node) -> Iterator[int]:
    """Storages of inputs that are returned, and of results that share memory."""
    inputs = {key for node in placeholders for key in _keys(node)}
    seen: set[int] = set()
    for key in _keys(output.args):
        if key in inputs or key in seen:
            yield key
        seen.add(key)


def buffer_storages(nodes: Sequence[fx.Node]) -> set[int]:
    """Keys of the storages whose values are buffers; `nodes` is a whole graph."""
    found: set[int] = set()
    for node in nodes:
        if node.op == "call_function" and isinstance(node.target, OpOverload):
            found.update(_touched(node, node.target))
    placeholders = [node for node in nodes if node.op == "placeholder"]
    found.update(_observable(placeholders, nodes[-1]))
    return found
