"""Operators that appear after tracing, broken down as tracing would have broken them down."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.torch_internals import traced, tracing_state
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload, map_nodes

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)

Decompositions = Mapping[Overload, Callable[..., object]]


def decompose_nodes(gm: fx.GraphModule, decompositions: Decompositions, fake_mode: FakeTensorMode) -> None:
    """Replace calls of operators in the table, in place; nodes and new nodes carry `meta["val"]`, in `fake_mode`.

    Calls that give a number (`sym_size`) stay: traced, they are the number that it is now.
    """
    for node in list(gm.graph.nodes):
        if is_overload(node.target) and node.target in decompositions and not isinstance(node.meta["val"], _NUMBERS):
            _decompose(gm, node, node.target, decompositions, fake_mode)


def _decompose(
    gm: fx.GraphModule, node: fx.Node, target: Overload, decompositions: Decompositions, fake_mode: FakeTensorMode
) -> None:
    """Replace a node by what its decomposition does, unless that is the operator itself."""
    operands = node.all_input_nodes

    def call(*values: object) -> object:
        value_of = dict(zip(operands, values, strict=True))
        return target(*map_nodes(node.args, value_of.__getitem__), **map_nodes(node.kwargs, value_of.__getitem__))

    with tracing_state(fake_mode):
        steps = traced(call, decompositions, [operand.meta["val"] for operand in operands])
    if any(step.target is target for step in steps.graph.nodes):
        return
    results = _inline(gm, node, steps, operands)
    if isinstance(results, fx.Node):
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise RuntimeError(f"{target}: expected its results to be taken apart, but {user.target} uses them all")
            user.replace_all_uses_with(cast("Sequence[fx.Node]", results)[cast(int, user.args[1])])
            gm.graph.erase_node(user)
    gm.graph.erase_node(node)


def _inline(gm: fx.GraphModule, node: fx.Node, steps: fx.GraphModule, operands: Sequence[fx.Node]) -> object:
    """Copy the nodes of `steps` in front of `node`; returns what they return."""
    new = dict(zip(steps.graph.find_nodes(op="placeholder"), operands, strict=True))
    with gm.graph.inserting_before(node):
        for step in steps.graph.nodes:
            if step.op in ("placeholder", "output"):
                continue
            new[step] = gm.graph.node_copy(step, new.__getitem__)
            if step.op == "get_attr":
                adopt_attribute(gm, new[step], fetch_attribute(steps, cast(str, step.target)))
            if "stack_trace" in node.meta:
                new[step].meta["stack_trace"] = node.meta["stack_trace"]
    return map_nodes(steps.graph.output_node().args[0], new.__getitem__)


def adopt_attribute(gm: fx.GraphModule, node: fx.Node, value: object) -> None:
    """Make `value` an attribute of `gm` under an unused name, and `node` a reference to it."""
    name = base = cast(str, node.target)
    number = 0
    while hasattr(gm, name):
        number += 1
        name = f"{base}_{number}"
    setattr(gm, name, value)
    node.target = name
