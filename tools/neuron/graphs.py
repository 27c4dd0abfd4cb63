"""What the passes on FX graphs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from torch import fx

from vllm_ir.frontends.fx.locations import user_location

Metadata: TypeAlias = dict[str, object]
"""What a pass found out, by name."""

Result: TypeAlias = tuple[fx.GraphModule, Metadata]


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph, and of its sub-graphs, that shares tensors and notes about nodes' values."""
    graph = fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    last = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    graph.output(output, last.type).meta.update(last.meta)
    result = fx.GraphModule(gm, graph)
    result.meta.update(gm.meta)
    for name, module in gm.named_children():
        if isinstance(module, fx.GraphModule):
            setattr(result, name, copied(module))
    return result


def graphs_in(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """A graph and all its sub-graphs."""
    return (module for module in gm.modules() if isinstance(module, fx.GraphModule))


def where(node: fx.Node) -> str:
    """How errors begin that are about a node."""
    place = user_location(node)
    return f"node `{node.name}`" + ("" if place is None else f" ({place[0]}:{place[1]})")
