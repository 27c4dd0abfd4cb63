"""The backends of `torch.compile`: `vllm_ir`, through Inductor, and `vllm_ir_eager`, which runs the exported graph."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from torch import fx
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.fx.export import export_split
from vllm_ir.backends.inductor.cache_directory import use_writable_cache
from vllm_ir.backends.inductor.cache_key import CacheKey
from vllm_ir.backends.inductor.compile import compile_functional
from vllm_ir.backends.inductor.settings import effective_patches
from vllm_ir.backends.inductor.torch_internals import decompositions, patched, with_last_passes
from vllm_ir.frontends.fx.normalize import Normalized
from vllm_ir.frontends.ops.priority import using_inductor
from vllm_ir.tools.artifact import Artifact, compile_direct, needs_autograd, static_inputs
from vllm_ir.tools.epilogue import with_epilogue
from vllm_ir.tools.gradients import compile_with_gradients
from vllm_ir.tools.lowering import (
    export_complete,
    lower_graph,
    overlapping_arguments,
    validator_for,
    written_arguments,
)
from vllm_ir.tools.offsets import places_windows
from vllm_ir.tools.options import CompileOptions, parse_options
from vllm_ir.tools.pipelines import MEMORY_PASS, split_passes, writes_in_place
from vllm_ir.tools.post_grad.hook import write_in_place
from vllm_ir.tools.reports import CompileReport, phase, record_copies, record_outcome, recording
from vllm_ir.tools.torch_internals import (
    autocast_enabled,
    compile_lock,
    inductor_cache_hits,
    make_floats_constant,
    without_autocast,
)

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
    parsed = parse_options(mode, options)
    if split_passes(parsed.passes)[1] not in ("", MEMORY_PASS):
        raise ValueError(
            f"pass pipeline {parsed.passes!r}: behind Inductor only {MEMORY_PASS} runs, without options; "
            "use backend='vllm_ir_eager'"
        )
    return _compile(gm, example_inputs, parsed, inductor=True)


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
    make_floats_constant()
    with _compiling(options, inductor):
        if needs_autograd(gm, inputs):
            return compile_with_gradients(gm, inputs, options, inductor=inductor)
        return _compile_direct(gm, inputs, options, inductor)


@contextmanager
def _compiling(options: CompileOptions, inductor: bool) -> Generator[None]:
    """One compilation at a time, as in Dynamo, under Inductor's configuration: tracing depends on it too."""
    with compile_lock(), using_inductor(inductor):
        if not inductor:
            yield
            return
        use_writable_cache()
        with patched(effective_patches(options.inductor)):
            yield


def _compile_direct(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, inductor: bool) -> Compiled:
    def build(gm: fx.GraphModule, inputs: Sequence[object]) -> Artifact:
        with _compiling(options, inductor):
            return _build(gm, inputs, options, inductor)

    return compile_direct(gm, inputs, build)


def _build(gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, inductor: bool) -> Artifact:
    with recording("vllm_ir" if inductor else "vllm_ir_eager", "inference") as report:
        table = decompositions() if inductor else None
        normalized, module = lower_graph(gm, inputs, options, report, table, inductor=inductor)
        if inductor:
            call = _through_inductor(normalized, module, report, static_inputs(gm), options)
        else:
            call = _as_exported(normalized, module, report)
    if autocast_enabled():
        # The graph holds the casts. Autocast would add them again, also where the program has switched it off.
        call = without_autocast(call)
    written = frozenset(written_arguments(module))
    placed = places_windows(normalized.graph_module)
    return Artifact(call, normalized.attributes, written, overlapping_arguments(module), placed)


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
    hook = write_in_place(module, exported, validator_for(options, report)) if writes_in_place(options.passes) else None
    hits = inductor_cache_hits()
    with phase(report, "backend"), with_last_passes([CacheKey(report.cache_key)]):
        compiled = compile_functional(
            exported.core, normalized.inputs, normalized.fake_mode, static_inputs, hook, exported.donated
        )
    report.from_cache = inductor_cache_hits() > hits
    if hook is not None:
        # What came from Inductor's cache went through the same once: do it again, to know what it was.
        record_outcome(report, hook.outcome or hook.apply(exported.core.graph, normalized.fake_mode))
    return with_epilogue(compiled, exported)
