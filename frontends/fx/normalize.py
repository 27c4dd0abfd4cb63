"""Any FX graph to an ATen graph that mutates and views exactly as the original does.

The graph is run once, node by node, under `make_fx` over fresh fakes. Nothing is functionalized: in-place operators,
`out=` operators, views and custom operators with mutable arguments stay what they are, in program order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.frontends.fx.attributes import ModuleTensors, graph_tensors
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.fakes import (
    InputSource,
    entry_metadata_known,
    fresh_fakes,
    is_symbolic,
    same_metadata,
    select_fake_mode,
)
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.refusals import EagerCalls
from vllm_ir.frontends.fx.replay import OriginalNames, Replay
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_internals import Overload, storage_id
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.tracing import NodeNames, Trace, trace

Decompositions = Mapping[Overload, Callable[..., object]]
_ABSENT = object()


@dataclass(frozen=True)
class Normalized:
    """An ATen graph, and what it was traced with.

    `graph_module` holds `call_function` nodes on overloads, higher-order operators and Python or torch functions of
    symbolic numbers; `get_attr` nodes only refer to sub-graphs and to `constants`. Every node has `meta["val"]`, a
    snapshot of its value as of that point of the program; values that share memory share
    `val.untyped_storage()`. Nodes that come from a node with a stack trace keep it.
    """

    graph_module: fx.GraphModule
    inputs: tuple[object, ...]
    """One fake tensor, symbolic number or constant per placeholder, with the metadata at entry."""
    final_inputs: tuple[object, ...]
    """The same with the metadata (size, strides, offset) at exit: `x.t_()` on an input shows here."""
    attributes: tuple[str, ...]
    """Qualified names of the tensor attributes that the last `len(attributes)` placeholders stand for."""
    constants: dict[str, torch.Tensor]
    """Real values of the constants that tracing found (`torch.tensor([1, 2])`), by `get_attr` target."""
    fake_mode: FakeTensorMode


def normalize(
    gm: fx.GraphModule,
    example_inputs: Sequence[object] | None = None,
    *,
    decompositions: Decompositions | None = None,
) -> Normalized:
    """Traces `gm` to ATen operators without functionalizing it.

    `example_inputs` are real or fake tensors, numbers or other constants, one per placeholder; real tensors tell which
    inputs share storage, while symbolic sizes are those of the graph's metas. Without them, the placeholders' `val` or
    `example_value` metas are used. `decompositions` are applied as by `make_fx`.

    The trace runs without gradients. Raises `FxImportError`, which names the node and the user's line, for whatever
    eager or torch's fake tensors refuse.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    if example_inputs is not None and len(example_inputs) != len(placeholders):
        raise FxImportError(f"the graph has {len(placeholders)} inputs, but {len(example_inputs)} examples were given")
    examples: Sequence[object] = example_inputs if example_inputs is not None else [_ABSENT] * len(placeholders)
    sources = [_source(node, example) for node, example in zip(placeholders, examples, strict=True)]
    tensors = graph_tensors(gm)

    names, calls = OriginalNames(), EagerCalls()

    def run(*arguments: object) -> object:
        inputs, attributes = arguments[: len(placeholders)], arguments[len(placeholders) :]
        return Replay(gm, tensors, cast("Sequence[torch.Tensor]", attributes), names, calls).replay(inputs)

    return trace_normalized(run, sources, tensors, decompositions, names)


def trace_normalized(
    function: Callable[..., object],
    sources: Sequence[InputSource],
    tensors: ModuleTensors,
    decompositions: Decompositions | None,
    original_names: NodeNames | None = None,
    *,
    record_user_frames: bool = False,
) -> Normalized:
    """Traces `function` over the fakes of `sources` followed by those of the attributes `tensors`.

    `record_user_frames` takes nodes' stack traces from the Python stack, for functions that do not replay a graph.
    """
    attributes = [InputSource(name, t, True, None) for name, t in zip(tensors.names, tensors.tensors, strict=True)]
    mode = select_fake_mode([*sources, *attributes])
    with torch.inference_mode(False):  # as the trace: ordinary tensors
        fakes = fresh_fakes(mode, [*sources, *attributes])
    held = _bytes_held(fakes)
    names = [source.name for source in sources]
    result = trace(
        function,
        mode,
        fakes,
        names,
        tensors.names,
        decompositions=decompositions,
        names=original_names,
        record_user_frames=record_user_frames,
    )
    _check_entry_metadata(mode, sources, result)
    _check_windows(result.graph_module, held)
    return Normalized(
        result.graph_module,
        tuple(result.entry),
        tuple(result.exit),
        tuple(result.attributes),
        result.constants,
        mode,
    )


def _source(placeholder: fx.Node, example: object) -> InputSource:
    if "val" in placeholder.meta:
        return InputSource(placeholder.name, example, example is not _ABSENT, placeholder.meta["val"])
    meta = placeholder.meta.get("example_value")
    return InputSource(placeholder.name, example, example is not _ABSENT, meta, meta_may_be_final=True)


def _check_entry_metadata(mode: FakeTensorMode, sources: Sequence[InputSource], result: Trace) -> None:
    """Refuses a graph that changes the metadata of an input whose metadata at entry is not known for certain."""
    for source, entry, exit_ in zip(sources, result.entry, result.exit, strict=False):
        if not (source.meta_may_be_final and isinstance(entry, torch.Tensor) and isinstance(exit_, torch.Tensor)):
            continue
        if not same_metadata(entry, exit_) and not entry_metadata_known(mode, source):
            raise FxImportError(
                f"the graph changes the shape or strides of input `{source.name}`, whose meta may be from after that "
                "change; pass example_inputs"
            )


def _bytes_held(fakes: Sequence[object]) -> dict[int, int]:
    """Sizes of the inputs' storages. Asked for before tracing: `as_strided` makes the storages of fakes grow."""
    tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
    sizes: dict[int, object] = {storage_id(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
    return {storage: size for storage, size in sizes.items() if isinstance(size, int)}


def _check_windows(gm: fx.GraphModule, held: Mapping[int, int]) -> None:
    """Refuses windows that reach beyond the memory of an input, as eager does."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if not is_overload(node.target) or not isinstance(value, torch.Tensor) or is_symbolic(value):
            continue
        size = held.get(storage_id(value))
        if size is None or 0 in value.shape or not op_info(node.target).places_windows:
            continue
        last = value.storage_offset() + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
        if (last + 1) * value.element_size() > size:
            raise FxImportError(
                f"{node.target} reaches element {last} of memory that holds {size // value.element_size()}",
                node=node.name,
                location=user_location(node),
            )
