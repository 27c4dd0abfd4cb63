"""Alias facts of FX graphs: `ir.alias_outputs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import fx
from torch.utils._pytree import tree_leaves
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from vllm_ir.conversions.alias_outputs import AliasOutputsPass
from vllm_ir.dialects.context import make_context
from vllm_ir.dialects.vllm_ir.function import RESOURCE, FuncOp
from vllm_ir.frontends.fx.importer import MAIN, import_fx
from vllm_ir.frontends.fx.symbols import contiguous_expressions
from vllm_ir.frontends.fx.torch_objects import output_node
from vllm_ir.frontends.fx.types import known_dtype

OutputView = tuple[int, tuple[int | str, ...], tuple[int | str, ...], int | str, torch.dtype]
"""Input, shape, strides, offset and dtype of a window; in elements, texts of expressions where symbolic."""


def alias_outputs(
    gm: fx.GraphModule, example_inputs: Sequence[object] | None = None
) -> tuple[fx.GraphModule, dict[str, object]]:
    """The graph with its mutated inputs as further outputs, and which output is which input.

    `gm` may write to its inputs, and so does the graph that is returned: a copy of it, whose outputs are a flat tuple
    of those of `gm` and then the inputs that it mutates, in the order of the inputs, except those that an output is
    already. `example_inputs` are real or fake tensors and numbers, one for each placeholder; those that share storage
    tell which inputs do. Without them the metas of the placeholders are used.

    The second result is a dictionary of:

    `io_map`: `{output: input}`, positions among all outputs and among the placeholders. An output is an input if it is
    the same memory: storage, offset, shape, strides and dtype. Each input is at most one output, the first.
    `original_output_count`: how many outputs `gm` has.
    `output_views`: `{output: (input, shape, strides, offset, dtype)}` for outputs of `gm` that are other windows onto
    the storage of an input; `as_strided` makes them of it.
    `attributes`: names of the tensors that `gm` holds and uses. A mutated one is appended as inputs are, and counts as
    an input behind the placeholders, in the order of this list.

    Raises `FxImportError`, naming node, file and line, for graphs that the IR cannot say, and `PassFailedException`.
    """
    module = import_fx(gm, example_inputs)
    AliasOutputsPass().apply(make_context(), module)
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    [main] = [function for function in functions if function.sym_name.data == MAIN]
    attributes = _attributes(main)
    meta: dict[str, object] = {
        "io_map": main.io_map,
        "original_output_count": main.original_output_count,
        "output_views": {output: _window(view) for output, view in main.output_views.items()},
        "attributes": attributes,
    }
    count = main.original_output_count or 0
    appended = [argument for output, argument in sorted(main.io_map.items()) if output >= count]
    return _with_outputs(gm, appended, attributes), meta


def _attributes(function: FuncOp) -> tuple[str, ...]:
    """Names of the module attributes that the last arguments are."""
    given = [function.argument_attributes(index).get(RESOURCE) for index in range(len(function.block.args))]
    return tuple(name.data for name in given if isinstance(name, StringAttr))


def _window(view: DictionaryAttr) -> OutputView:
    fields: Mapping[str, Attribute] = view.data
    shape = _numbers(fields["shape"])
    strides = _numbers(fields["strides"]) if "strides" in fields else contiguous_expressions(shape)
    source, offset = _number(fields["input"]), _number(fields["offset"])
    return cast(int, source), shape, strides, offset, known_dtype(fields["dtype"])


def _numbers(entries: Attribute) -> tuple[int | str, ...]:
    return tuple(map(_number, cast(ArrayAttr[Attribute], entries).data))


def _number(entry: Attribute) -> int | str:
    return entry.data if isinstance(entry, StringAttr) else cast(IntegerAttr, entry).value.data


def _with_outputs(gm: fx.GraphModule, appended: Sequence[int], attributes: Sequence[str]) -> fx.GraphModule:
    """A copy of `gm` that also returns these inputs; its tensors and sub-graphs are those of `gm`."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    returned = graph.graph_copy(gm.graph, copies)
    inputs = [copies[node] for node in gm.graph.nodes if node.op == "placeholder"]
    further = [
        inputs[index] if index < len(inputs) else graph.get_attr(attributes[index - len(inputs)]) for index in appended
    ]
    output_node(graph, (*tree_leaves(returned), *further))
    result = fx.GraphModule(gm, graph)
    result.meta.update(gm.meta)
    return result
