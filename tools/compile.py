"""The backends of `torch.compile`: `vllm_ir`, through Inductor, and `vllm_ir_eager`, which runs the exported graph."""

import operator
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.fx.export import export_split
from vllm_ir.backends.inductor.compile import compile_functional
from vllm_ir.backends.inductor.settings import effective_patches
from vllm_ir.backends.inductor.torch_internals import decompositions, patched
from vllm_ir.frontends.fx.attributes import graph_tensors
from vllm_ir.frontends.fx.normalize import Normalized
from vllm_ir.tools.epilogue import with_epilogue
from vllm_ir.tools.gradients import compile_with_gradients
from vllm_ir.tools.lowering import (
    export_complete,
    lower_graph,
    overlapping_arguments,
    without_values,
    written_arguments,
)
from vllm_ir.tools.options import CompileOptions, parse_options
from vllm_ir.tools.overlap import (
    Arrangement,
    ArrangementCheck,
    CheckedCall,
    can_overlap,
    overlapping_pairs,
    same_window,
)
from vllm_ir.tools.pipelines import writes_in_place
from vllm_ir.tools.post_grad.hook import write_in_place
from vllm_ir.tools.reports import CompileReport, phase, record_copies, record_outcome, recording
from vllm_ir.tools.torch_internals import autocast_enabled, compile_lock, switches_gradients_on, without_autocast

Compiled = Callable[..., object]


def vllm_ir(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Compiled:
    """Compile a graph through the IR and Inductor; a backend of `torch.compile`, which can also be called directly.

    Args:
        gm: a graph from Dynamo, `make_fx` or built by hand. It is not changed.
        example_inputs: its inputs: tensors, real or fake, and numbers.
        mode: as for `torch.compile(backend="inductor")`.
        options: `ir_op_priority` ({op: [providers]}), `passes` (a pipeline as text) and any option of Inductor.

    Returns:
        A callable that takes the graph's inputs and does what the graph does: results, writes to arguments, aliases.

    Raises:
        ValueError: an option is unknown or malformed.
        FxImportError: the program cannot be imported; the message names the node and the user's line.
    """
    return _compile(gm, example_inputs, parse_options(mode, options), inductor=True)


def vllm_ir_eager(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Compiled:
    """Like `vllm_ir`, but the exported graph runs as it is, without Inductor: for debugging and tests."""
    return _compile(gm, example_inputs, parse_options(mode, options), inductor=False)


def _compile(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, *, inductor: bool) -> Compiled:
    with _compiling(options, inductor):
        if _needs_autograd(gm, inputs):
            return compile_with_gradients(gm, inputs, options, inductor=inductor)
        return _compile_direct(gm, inputs, options, inductor)


@contextmanager
def _compiling(options: CompileOptions, inductor: bool) -> Generator[None]:
    """One compilation at a time, as in Dynamo, under Inductor's configuration: tracing depends on it too."""
    with compile_lock():
        if not inductor:
            yield
            return
        with patched(effective_patches(options.inductor)):
            yield


def _needs_autograd(gm: fx.GraphModule, inputs: Sequence[object]) -> bool:
    """Whether a graph has to go through AOTAutograd: something in it may need gradients or is a tensor subclass."""
    tensors = [value for value in (*inputs, *graph_tensors(gm).tensors) if isinstance(value, Tensor)]
    if any(map(is_traceable_wrapper_subclass, tensors)):
        return True
    gradients = torch.is_grad_enabled() or switches_gradients_on(gm)
    return gradients and any(tensor.requires_grad for tensor in tensors)


@dataclass(frozen=True)
class _Artifact:
    """A compiled graph without gradients."""

    call: Compiled
    """Takes the graph's inputs, followed by the module attributes that it uses."""
    attributes: tuple[str, ...]
    written: frozenset[int]
    """Positions of the arguments of `call` whose contents it changes."""
    overlapping: list[list[int]]
    """Groups of arguments that share memory."""


def _compile_direct(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, inductor: bool) -> Compiled:
    """Compile a graph without gradients: the IR knows all that it does to its arguments."""
    if _overlap_with_dynamic_sizes(inputs):
        return _for_each_arrangement(gm, options, inductor)
    artifact = _build(gm, inputs, options, inductor)
    call = artifact.call
    fetch = _attribute_getter(gm, artifact.attributes)
    if artifact.written:
        call = _checked(artifact, gm, (*inputs, *fetch()), options, inductor)
    return call if not artifact.attributes else lambda *arguments: call(*arguments, *fetch())


def _build(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, inductor: bool) -> _Artifact:
    with recording("vllm_ir" if inductor else "vllm_ir_eager", "inference") as report:
        table = decompositions() if inductor else None
        normalized, module = lower_graph(gm, inputs, options, report, table, inductor=inductor)
        if inductor:
            call = _through_inductor(normalized, module, report, _static_inputs(gm), options)
        else:
            call = _as_exported(normalized, module, report)
    if autocast_enabled():
        # The graph holds the casts. Autocast would add them again, also where the program has switched it off.
        call = without_autocast(call)
    written = frozenset(written_arguments(module))
    return _Artifact(call, normalized.attributes, written, overlapping_arguments(module))


def _overlap_with_dynamic_sizes(inputs: Sequence[object]) -> bool:
    """Whether inputs of symbolic sizes are different windows onto the same memory, so only sizes tell how."""
    if not any(isinstance(value, torch.SymInt) for value in inputs) or not can_overlap(inputs):
        return False
    pairs = ((inputs[left], inputs[right]) for left, right in overlapping_pairs(inputs))
    return any(not same_window(cast(Tensor, left), cast(Tensor, right)) for left, right in pairs)


def _for_each_arrangement(gm: fx.GraphModule, options: CompileOptions, inductor: bool) -> Compiled:
    """Compile once for every size that the arguments come in, when they do."""
    original = without_values(gm)

    def compile_for(arguments: Sequence[object]) -> Compiled:
        with _compiling(options, inductor):
            return _compile_direct(without_values(original), arguments, options, inductor)

    return CheckedCall(None, None, compile_for, original.forward)


def _checked(
    artifact: _Artifact, gm: fx.GraphModule, arguments: Sequence[object], options: CompileOptions, inductor: bool
) -> Compiled:
    """Compare addresses at each call; compile once more for arguments that lie differently in memory."""
    if not can_overlap(arguments):
        return artifact.call
    count = len(arguments) - len(artifact.attributes)

    def compile_for(others: Sequence[object]) -> Compiled:
        with _compiling(options, inductor):
            return _build(without_values(gm), others[:count], options, inductor).call

    check = ArrangementCheck(Arrangement.of(arguments, artifact.written, artifact.overlapping), arguments)
    return CheckedCall(artifact.call, check, compile_for, lambda *others: gm.forward(*others[:count]))


def _attribute_getter(gm: fx.GraphModule, names: Sequence[str]) -> Callable[[], Sequence[object]]:
    """Reads module attributes; at every call, because a program may put other tensors in their place."""
    if not names:
        return tuple
    get = operator.attrgetter(*names)
    return (lambda: get(gm)) if len(names) > 1 else (lambda: (get(gm),))


def _as_exported(normalized: Normalized, module: ModuleOp, report: CompileReport) -> Compiled:
    with phase(report, "export"):
        exported = export_complete(normalized, module)
    record_copies(report, exported.graph_module.graph, exported.copies)
    return exported.graph_module.forward


def _through_inductor(
    normalized: Normalized,
    module: ModuleOp,
    report: CompileReport,
    static_inputs: Sequence[int],
    options: CompileOptions,
) -> Compiled:
    with phase(report, "export"):
        exported = export_split(module, normalized.inputs, normalized.fake_mode)
    record_copies(report, exported.core.graph, exported.copies)
    hook = write_in_place(module, exported) if writes_in_place(options.passes) else None
    with phase(report, "backend"):
        compiled = compile_functional(
            exported.core, normalized.inputs, normalized.fake_mode, static_inputs, hook, exported.donated
        )
    if hook is not None:
        # What came from Inductor's cache went through the same once: do it again, to know what it was.
        record_outcome(report, hook.outcome or hook.apply(exported.core.graph, normalized.fake_mode))
    return with_epilogue(compiled, exported)


def _static_inputs(gm: fx.GraphModule) -> list[int]:
    """Inputs of a Dynamo graph whose address stays the same: parameters and buffers of modules."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [
        i for i, node in enumerate(placeholders) if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    ]
