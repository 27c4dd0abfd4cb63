"""Which values of a graph are buffers: memory that is written, or whose identity the caller can see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from torch import Tensor, fx
from torch._ops import OpOverload

from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.ops import donates, get_op
from vllm_ir.frontends.ops.torch_internals import storage_id

storage_key = storage_id
"""Identity of a tensor's storage; equal for tensors that share memory."""


def tensors_in(value: object) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in cast("dict[object, object]", value).values():
            yield from tensors_in(item)


def nodes_in(argument: object) -> Iterator[fx.Node]:
    """All nodes in nested arguments, with repetitions."""
    if isinstance(argument, fx.Node):
        yield argument
    elif isinstance(argument, list | tuple):
        for item in cast("Sequence[object]", argument):
            yield from nodes_in(item)
    elif isinstance(argument, dict):
        for item in cast("dict[object, object]", argument).values():
            yield from nodes_in(item)
    elif isinstance(argument, slice):
        part = cast("slice[object, object, object]", argument)
        yield from nodes_in((part.start, part.stop, part.step))


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
    if (op := get_op(target)) is not None and donates(target):
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


def buffer_storages(nodes: Sequence[fx.Node], arguments: Collection[fx.Node] = ()) -> set[int]:
    """Keys of the storages whose values are buffers; `nodes` is a whole graph.

    The caller can see the memory of placeholders, and of the nodes in `arguments`.
    """
    found: set[int] = set()
    for node in nodes:
        if node.op == "call_function" and is_overload(node.target):
            found.update(_touched(node, node.target))
    placeholders = [node for node in nodes if node.op == "placeholder" or node in arguments]
    found.update(_observable(placeholders, nodes[-1]))
    return found
