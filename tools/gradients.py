"""Graphs with gradients or tensor subclasses: our pipeline as the compiler of AOTAutograd's graphs."""

from collections.abc import Callable, Sequence
from typing import cast

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.convert_frame import compile_lock
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from vllm_ir.backends.inductor.compile import decompositions
from vllm_ir.backends.inductor.prepare import prepare_for_inductor
from vllm_ir.backends.inductor.settings import effective_patches
from vllm_ir.frontends.fx.normalize import Normalized
from vllm_ir.tools.lowering import export_complete, lower_graph, without_values
from vllm_ir.tools.options import CompileOptions
from vllm_ir.tools.overlap import Arrangement, ArrangementCheck, CheckedCall, has_addresses, overlapping_groups
from vllm_ir.tools.reports import phase, record_copies, recording

Compiled = Callable[..., object]


def compile_with_gradients(
    gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, *, inductor: bool
) -> Compiled:
    """Compile a graph that AOTAutograd splits into forward and backward, and strips of tensor subclasses.

    The graphs that come back are functional but for copies into written inputs at the end; each is imported, lowered
    and exported with its inputs and results in place. The backward graph may be compiled later, when it first runs.
    """
    options = options.resolved()  # the backward graph may be compiled outside the priorities in force now
    original = without_values(gm)  # AOTAutograd takes over what it is given
    compiled = _inductor_autograd(gm, inputs, options) if inductor else _eager_autograd(gm, inputs, options)
    written = _written_inputs()
    if not written or len(inputs) < 2 or not has_addresses(inputs):
        return compiled

    def compile_for(others: Sequence[object]) -> Compiled:
        with compile_lock:
            return compile_with_gradients(original, others, options, inductor=inductor)

    check = ArrangementCheck(Arrangement.of(inputs, written, overlapping_groups(inputs)), inputs)
    return CheckedCall(compiled, check, compile_for, original.forward)


def _eager_autograd(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions) -> Compiled:
    def compiler(kind: str) -> Callable[[fx.GraphModule, Sequence[object]], Compiled]:
        def compile_part(part: fx.GraphModule, part_inputs: Sequence[object]) -> Compiled:
            exported, _ = _lower_part(part, part_inputs, options, "vllm_ir_eager", kind)
            return make_boxed_func(exported.forward)

        return compile_part

    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        keep_inference_input_mutations=True,
    )
    return cast(Compiled, backend(gm, inputs))


def _inductor_autograd(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions) -> Compiled:
    def inner(part: fx.GraphModule, part_inputs: Sequence[object], **kwargs: object) -> Compiled:
        kind = "backward" if kwargs.get("is_backward") else "inference" if kwargs.get("is_inference") else "forward"
        return _compile_part(part, part_inputs, options, kind, kwargs)

    # AOTAutograd's cache does not know of the inner compiler: it would hand out what Inductor alone has compiled.
    with functorch_config.patch(enable_autograd_cache=False):
        return cast(
            Compiled, compile_fx(gm, inputs, inner_compile=inner, config_patches=effective_patches(options.inductor))
        )


def _compile_part(
    part: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, kind: str, kwargs: dict[str, object]
) -> Compiled:
    exported, normalized = _lower_part(part, inputs, options, "vllm_ir", kind)
    prepare_for_inductor(exported, decompositions(), normalized.fake_mode)
    exported.graph.output_node().meta.update(part.graph.output_node().meta)
    exported.meta.update(part.meta)
    return cast(Compiled, compile_fx_inner(exported, inputs, **kwargs))


def _lower_part(
    part: fx.GraphModule,
    inputs: Sequence[object],
    options: CompileOptions,
    backend: str,
    kind: str,
) -> tuple[fx.GraphModule, Normalized]:
    with compile_lock, recording(backend, kind) as report:
        normalized, module = lower_graph(part, inputs, options, report)
        with phase(report, "export"):
            exported = export_complete(normalized, module, part)
        report.op_counts["export"] = len(exported.graph.nodes)
        record_copies(report, exported.graph)
    return exported, normalized


def _written_inputs() -> frozenset[int]:
    """Positions of the inputs that, as AOTAutograd has found, the graph it just compiled writes."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return frozenset()
    return frozenset(i for i, info in enumerate(metadata.input_info) if info.mutates_data)
