"""Graphs with gradients or tensor subclasses: our pipeline as the compiler of AOTAutograd's graphs."""

from collections.abc import Callable, Sequence
from functools import partial

from torch import fx

from vllm_ir.backends.inductor.cache_key import CacheKey
from vllm_ir.backends.inductor.prepare import prepare_for_inductor
from vllm_ir.backends.inductor.settings import effective_patches
from vllm_ir.backends.inductor.torch_internals import (
    compile_graph,
    compile_with_autograd,
    decompositions,
    with_last_passes,
)
from vllm_ir.frontends.fx.normalize import Normalized
from vllm_ir.tools.lowering import export_complete, lower_graph, without_values
from vllm_ir.tools.options import CompileOptions
from vllm_ir.tools.overlap import Arrangement, ArrangementCheck, CheckedCall, can_overlap, overlapping_groups
from vllm_ir.tools.pipelines import writes_in_place
from vllm_ir.tools.post_grad.post_grad_pass import PostGradPass
from vllm_ir.tools.reports import phase, record_copies, recording
from vllm_ir.tools.torch_internals import autograd_backend, compile_lock, inputs_written_under_autograd

Compiled = Callable[..., object]


def compile_with_gradients(
    gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, *, inductor: bool
) -> Compiled:
    """Compile a graph that AOTAutograd splits into forward and backward, and strips of tensor subclasses.

    The graphs that come back are functional but for copies into written inputs at the end; each is imported, lowered
    and exported with its inputs and results in place. The backward graph may be compiled later, when it first runs.
    """
    options = options.resolved()  # by then, other priorities may be in force
    original = without_values(gm)  # AOTAutograd takes over what it is given
    compiled = _inductor_autograd(gm, inputs, options) if inductor else _eager_autograd(gm, inputs, options)
    written = inputs_written_under_autograd()
    if not written or not can_overlap(inputs):
        return compiled

    def compile_for(others: Sequence[object]) -> Compiled:
        with compile_lock():
            return compile_with_gradients(original, others, options, inductor=inductor)

    check = ArrangementCheck(Arrangement.of(inputs, written, overlapping_groups(inputs)), inputs)
    return CheckedCall(compiled, check, compile_for, original.forward)


def _eager_autograd(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions) -> Compiled:
    def compile_part(kind: str, part: fx.GraphModule, part_inputs: Sequence[object]) -> Compiled:
        exported, _, _ = _lower_part(part, part_inputs, options, kind, inductor=False)
        return exported.forward

    kinds = ("forward", "backward", "inference")
    return autograd_backend(*(partial(compile_part, kind) for kind in kinds))(gm, inputs)


def _inductor_autograd(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions) -> Compiled:
    in_place = writes_in_place(options.passes)

    def compile_part(part: fx.GraphModule, part_inputs: Sequence[object], **inductor_options: object) -> Compiled:
        kind = "backward" if inductor_options.get("is_backward") else "forward"
        kind = "inference" if inductor_options.get("is_inference") else kind
        exported, normalized, key = _lower_part(part, part_inputs, options, kind, inductor=True)
        prepare_for_inductor(exported, decompositions(), normalized.fake_mode)
        # What Inductor has noted on the whole graph and its outputs: which of these the user sees, for one.
        exported.graph.output_node().meta.update(part.graph.output_node().meta)
        exported.meta.update(part.meta)
        writing = [PostGradPass("functionalize,eliminate-clones")] if in_place else []
        with with_last_passes([CacheKey(key), *writing]):
            return compile_graph(exported, part_inputs, **inductor_options)

    return compile_with_autograd(gm, inputs, compile_part, effective_patches(options.inductor))


def _lower_part(
    part: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, kind: str, *, inductor: bool
) -> tuple[fx.GraphModule, Normalized, str]:
    """The graph of a lowered part, what it was made from, and the key of what is compiled from it."""
    with compile_lock(), recording("vllm_ir" if inductor else "vllm_ir_eager", kind) as report:
        normalized, module = lower_graph(part, inputs, options, report, inductor=inductor)
        with phase(report, "export"):
            exported = export_complete(normalized, module, part, inductor=inductor)
        record_copies(report, exported.graph_module.graph, exported.copies)
    return exported.graph_module, normalized, report.cache_key
