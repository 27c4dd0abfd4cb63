"""What happens around a compiled functional graph: writes to arguments, aliases, and the structure of the results."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx

from vllm_ir.backends.fx.export import SplitGraph
from vllm_ir.backends.inductor.torch_internals import BoxedCallable

Compiled = Callable[..., object]


def with_epilogue(compiled: BoxedCallable, exported: SplitGraph) -> Compiled:
    """The program's results, from those of its functional part.

    Final values that come back as None are in the arguments already. Which ones that are is known when the graph has
    run for the first time, since it may come from a cache.
    """
    if exported.epilogue is None:
        return lambda *arguments: compiled(list(arguments))
    if not exported.finals:
        return _run_behind(compiled, exported.epilogue, exported.epilogue_arguments)
    return _FirstCall(compiled, exported)


@dataclass
class _FirstCall:
    """Runs the graph once, then leaves out what it turned out not to need."""

    compiled: BoxedCallable
    exported: SplitGraph
    call: Compiled | None = None

    def __call__(self, *arguments: object) -> object:
        if self.call is not None:
            return self.call(*arguments)
        results = self.compiled(list(arguments))
        epilogue, positions = without_writes(self.exported, [i for i, result in enumerate(results) if result is None])
        self.call = _run_behind(self.compiled, epilogue, positions)
        return epilogue.forward(*(arguments[position] for position in positions), *results)


def without_writes(exported: SplitGraph, missing: Sequence[int]) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """The epilogue without the writes of outputs that are not there, and the arguments that it still takes."""
    if exported.epilogue is None:
        raise ValueError("there is no epilogue")
    graph = fx.Graph()
    graph.output(graph.graph_copy(exported.epilogue.graph, {}))
    placeholders = graph.find_nodes(op="placeholder")
    count = len(exported.epilogue_arguments)
    for index in missing:
        for user in list(placeholders[count + index].users):
            if user.target is torch.ops.aten.copy_.default:
                user.replace_all_uses_with(cast(fx.Node, user.args[0]))
                graph.erase_node(user)
    kept: list[int] = []
    for node, position in zip(placeholders, exported.epilogue_arguments, strict=False):
        if node.users:
            kept.append(position)
        else:
            graph.erase_node(node)
    return fx.GraphModule(exported.epilogue, graph), tuple(kept)


def _run_behind(compiled: BoxedCallable, epilogue: fx.GraphModule, positions: tuple[int, ...]) -> Compiled:
    finish = epilogue.forward
    if not positions:
        return lambda *arguments: finish(*compiled(list(arguments)))
    if len(positions) == 1:
        (position,) = positions
        return lambda *arguments: finish(arguments[position], *compiled(list(arguments)))
    pick = cast("Callable[[Sequence[object]], Sequence[object]]", operator.itemgetter(*positions))
    return lambda *arguments: finish(*pick(arguments), *compiled(list(arguments)))
