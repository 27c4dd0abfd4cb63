"""One run of `make_fx` over given fakes, and the clean-up of the graph it makes."""

import itertools
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.composites import as_in_eager
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.locations import is_user_file
from vllm_ir.frontends.fx.roomy_stack import on_roomy_stack
from vllm_ir.frontends.fx.torch_internals import (
    SYMBOLIC_TYPES,
    Overload,
    number_if_constant,
    record_stack_traces,
    rename_nodes,
    traced,
    tracing_state,
)
from vllm_ir.frontends.fx.view_copies import view_copy_decompositions


class NodeNames(Protocol):
    """Tells which nodes of the new graph should carry which names."""

    def wanted(self) -> Mapping[fx.Node, str]:
        """The names, asked for once tracing is over."""
        ...


@dataclass
class Trace:
    """A traced graph: its inputs' values at entry and exit, the attributes that it uses, its constants."""

    graph_module: fx.GraphModule
    entry: list[object] = field(default_factory=lambda: [])
    exit: list[object] = field(default_factory=lambda: [])
    attributes: list[str] = field(default_factory=lambda: [])
    constants: dict[str, torch.Tensor] = field(default_factory=lambda: {})


def trace(
    function: Callable[..., object],
    mode: FakeTensorMode,
    fakes: Sequence[object],
    input_names: Sequence[str],
    attribute_names: Sequence[str],
    *,
    decompositions: Mapping[Overload, Callable[..., object]] | None = None,
    names: NodeNames | None = None,
    record_user_frames: bool = False,
) -> Trace:
    """Traces `function(*fakes)`; the last `len(attribute_names)` of the fakes stand for module attributes.

    The placeholders get `input_names`, exactly; those of attributes that the graph does not use are dropped.
    `record_user_frames` takes nodes' stack traces from the Python stack, for functions that do not replay a graph.
    """

    def run(*arguments: object) -> object:
        if record_user_frames:
            record_stack_traces(is_user_file)
        return pytree.tree_map_only(SYMBOLIC_TYPES, number_if_constant, function(*arguments))

    table = {**view_copy_decompositions(), **(decompositions or {})}
    with tracing_state(mode), as_in_eager():
        try:
            gm = on_roomy_stack(lambda: traced(run, table, list(fakes)))
        except FxImportError:
            raise
        except Exception as error:
            raise FxImportError(error_summary(error), location=_error_location(error)) from error
    result = Trace(gm)
    wanted = dict(names.wanted()) if names is not None else {}
    wanted |= _settle_inputs(result, fakes, input_names, attribute_names)
    rename_nodes(gm.graph, wanted)
    for module in gm.modules():  # the graph itself, and sub-graphs
        if isinstance(module, fx.GraphModule):
            _settle_values(module, result)
    return result


def _settle_inputs(
    result: Trace, fakes: Sequence[object], input_names: Sequence[str], attribute_names: Sequence[str]
) -> dict[fx.Node, str]:
    """Lists the inputs' values, drops attributes without users, and returns the names of the placeholders."""
    graph = result.graph_module.graph
    wanted: dict[fx.Node, str] = {}
    names = [*input_names, *(name.replace(".", "_") for name in attribute_names)]
    placeholders = list(graph.find_nodes(op="placeholder"))
    for i, (node, name, fake) in enumerate(zip(placeholders, names, fakes, strict=True)):
        if i >= len(input_names):
            if not node.users:
                graph.erase_node(node)
                continue
            result.attributes.append(attribute_names[i - len(input_names)])
        wanted[node] = name
        node.meta.setdefault("val", fake)
        result.entry.append(node.meta["val"])
        result.exit.append(fake)
    return wanted


def _settle_values(gm: fx.GraphModule, result: Trace) -> None:
    """Completes the values of nodes, and lists constants under names that no attribute and no other constant has."""
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.meta.setdefault("val", None)  # operators without results
        if node.op != "get_attr":
            continue
        name = cast(str, node.target)
        value = fetch_attribute(gm, name)
        if isinstance(value, FakeTensor):
            raise FxImportError("it is a tensor that neither an input nor an operator made", node=node.name)
        if not isinstance(value, torch.Tensor):
            continue
        if name in result.attributes or result.constants.get(name, value) is not value:
            name = _free_name(gm, result)
            gm.register_buffer(name, value, persistent=False)
            node.target = name
        result.constants[name] = value
    gm.recompile()


def _free_name(gm: fx.GraphModule, result: Trace) -> str:
    names = (f"_lifted_constant{i}" for i in itertools.count())
    return next(n for n in names if not (hasattr(gm, n) or n in result.attributes or n in result.constants))


def _error_location(error: BaseException) -> tuple[str, int] | None:
    """File and line of the innermost frame of `error` that is in a user's file."""
    user = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
    file, line = user[-1] if user else (None, None)
    return None if file is None or line is None else (file, line)
