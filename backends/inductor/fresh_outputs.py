"""Outputs that are promised to be fresh stay fresh, whatever Inductor's passes fold, and have their strides.

Inductor replaces `x * 1`, `x + 0` and clones by their operand. Where the operand is an input, the caller would get its
own tensor back; where it is another output, two results would share memory. Both show as soon as the caller writes one.
"""

from collections.abc import Collection, Sequence
from typing import cast

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx.node import Argument

from vllm_ir.backends.inductor import aliases
from vllm_ir.backends.inductor.aliases import memory_root, output_nodes, viewed_operand
from vllm_ir.backends.inductor.torch_internals import current_fake_mode

_MARK = "vllm_ir_sharing"


class KeepOutputsFresh(CustomGraphPass):
    """Clones outputs that came to share memory which they did not share in the graph as it was given to Inductor.

    `sharing` has an entry per output: the name of the placeholder or node whose memory it had in the given graph. The
    pass runs as the last custom pass after gradients; it leaves graphs that `mark` has not seen (sub-graphs) alone.
    """

    def __init__(self, sharing: Sequence[str | None], given: Collection[str] = ()) -> None:
        self.sharing = tuple(sharing)
        self.given = frozenset(given)
        """Placeholders whose memory may be returned, because the caller gave it away."""

    @classmethod
    def mark(cls, graph: fx.Graph, given: Collection[str] = ()) -> "KeepOutputsFresh":
        """The pass for a graph that Inductor has not touched yet. Marks the graph as its own."""
        roots = (memory_root(node).name if isinstance(node, fx.Node) else None for node in output_nodes(graph))
        keeper = cls(tuple(roots), given)
        graph.output_node().meta[_MARK] = keeper.sharing
        return keeper

    def __call__(self, graph: fx.Graph) -> None:
        output = graph.output_node()
        if output.meta.get(_MARK) != self.sharing:
            return
        placeholders = graph.find_nodes(op="placeholder")
        taken: dict[fx.Node, str] = {node: node.name for node in placeholders if node.name not in self.given}
        for index, (node, promised) in enumerate(zip(output_nodes(graph), self.sharing, strict=True)):
            if not isinstance(node, fx.Node) or promised is None or not _is_tensor(node):
                continue
            if taken.setdefault(memory_root(node), promised) != promised:
                _replace_output(output, index, _clone(graph, node))
            elif (base := _viewed(node)) is not node and base.op == "call_function":
                # A view has its strides if its base has them; Inductor would lay out the base as it likes.
                base.meta["inductor_realize_to_strides"] = True

    def uuid(self) -> object:
        """What cached artifacts of this pass depend on: its code, and what it promises."""
        return get_hash_for_files((__file__, aliases.__file__)), self.sharing, tuple(sorted(self.given))


def _replace_output(output: fx.Node, index: int, node: fx.Node) -> None:
    (returned,) = output.args
    items = list(cast("Sequence[Argument]", returned))
    items[index] = node
    output.args = (tuple(items),)


def _viewed(node: fx.Node) -> fx.Node:
    """What a node is a view of, or a view of a view."""
    while (base := viewed_operand(node)) is not None:
        node = base
    return node


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _clone(graph: fx.Graph, node: fx.Node) -> fx.Node:
    with graph.inserting_before(graph.output_node()):
        clone = graph.call_function(torch.ops.aten.clone.default, (node,))
    with current_fake_mode():
        clone.meta["val"] = torch.ops.aten.clone.default(node.meta["val"])
    return clone
