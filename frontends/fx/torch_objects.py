"""The private or untyped parts of torch's operators, symbolic numbers and graph nodes, behind typed functions.

Unlike `torch_internals`, this loads neither torch's tracing nor SymPy: reading and checking a module needs neither.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Private: schemas, side effects and renaming of nodes have no public form. Unknown: symbolic numbers lack types.

from collections.abc import Callable, Mapping
from typing import TypeGuard, TypeVar, cast

import torch
from torch import SymBool, SymFloat, SymInt, fx
from torch._ops import OpOverload, OpOverloadPacket
from torch._prims_common import clone_preserve_strides
from torch.fx.node import Argument, _side_effectful_functions

SymbolicNumber = SymInt | SymFloat | SymBool
SYMBOLIC_TYPES = (SymInt, SymFloat, SymBool)
Overload = OpOverload[..., object]
Structure = TypeVar("Structure")


# Symbolic numbers. None of these installs a guard.


def expression(size: int | SymbolicNumber) -> object:
    """The number itself, or the sympy expression of a symbolic one."""
    return size.node.expr if isinstance(size, SYMBOLIC_TYPES) else size


def is_row_major(tensor: torch.Tensor) -> bool:
    """Whether strides are those of `torch.empty`, compared as expressions; sizes of 0 count as 1."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if expression(stride) != step:
            return False
        step = step * (size.node.expr if isinstance(size, SymInt) else max(size, 1))
    return True


def clone_with_strides(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in new memory with the same strides, gaps included."""
    return clone_preserve_strides(tensor)


# Operators.


def is_overload(target: object) -> TypeGuard[Overload]:
    """Whether a call's target is an operator overload."""
    return isinstance(target, OpOverload)


def schema_of(op: Overload) -> torch.FunctionSchema:
    """The schema of an overload."""
    return op._schema


def packet_of(namespace: str, name: str) -> OpOverloadPacket[..., object] | None:
    """`torch.ops.<namespace>.<name>`, if it exists."""
    return getattr(getattr(torch.ops, namespace), name, None)


def overloads_of(packet: OpOverloadPacket[..., object]) -> list[Overload]:
    """All overloads of a packet."""
    return [getattr(packet, name) for name in packet.overloads()]


def has_side_effects(target: object) -> bool:
    """Whether FX keeps calls of `target` that nothing uses."""
    return target in _side_effectful_functions


# Graph nodes.


def map_nodes(structure: Structure, function: Callable[[fx.Node], object]) -> Structure:
    """Nested lists, tuples and dictionaries with each node replaced by what `function` gives for it."""
    return cast(Structure, fx.map_arg(cast(Argument, structure), cast(Callable[[fx.Node], Argument], function)))


def call_node(
    graph: fx.Graph, target: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> fx.Node:
    """A new call at the end of `graph`."""
    return graph.call_function(target, cast("tuple[Argument, ...]", args), cast("dict[str, Argument]", dict(kwargs)))


def output_node(graph: fx.Graph, value: object) -> fx.Node:
    """The output of `graph`."""
    return graph.output(cast(Argument, value))


def rename_node(node: fx.Node, name: str) -> None:
    """Give a node a name, made unique in its graph."""
    node._rename(name)


def reserve_name(graph: fx.Graph, name: str) -> None:
    """Keep the nodes of a graph from being called so."""
    graph._graph_namespace.create_name(name, None)
