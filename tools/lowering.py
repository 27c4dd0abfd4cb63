"""From an FX graph to a lowered module: what all backends do first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import fx
from torch._ops import OpOverload
from xdsl.dialects.builtin import IntegerAttr, ModuleOp

from vllm_ir.backends.fx.export import ExportedGraph, export_graph
from vllm_ir.backends.inductor.cache_directory import own_directory
from vllm_ir.conversions.trace_store import TraceStore
from vllm_ir.dialects.vllm_ir.function import DONATED, MUTATED, STORAGE, FuncOp
from vllm_ir.frontends.fx.importer import MAIN, import_normalized
from vllm_ir.frontends.fx.normalize import Normalized, normalize
from vllm_ir.tools.cache_key import cache_key, tracing_facts
from vllm_ir.tools.debug_artifacts import keep_module
from vllm_ir.tools.options import CompileOptions
from vllm_ir.tools.pipelines import needs_group_places, run_passes, split_passes
from vllm_ir.tools.reports import CompileReport, count_ops, phase, record_decisions, record_phase
from vllm_ir.tools.torch_internals import autocast_enabled

if TYPE_CHECKING:
    from vllm_ir.tools.validation.validator import Validator


def lower_graph(
    gm: fx.GraphModule,
    inputs: Sequence[object],
    options: CompileOptions,
    report: CompileReport,
    decompositions: Mapping[OpOverload, Callable[..., object]] | None = None,
    *,
    inductor: bool = False,
) -> tuple[Normalized, ModuleOp]:
    """Normalise a graph, import it and run the passes; fills in the report.

    Inductor takes values: for it, the passes that put them into memory are left for the hook behind its own.
    """
    with options.apply_priorities():
        with phase(report, "normalize"):
            normalized = normalize(gm, inputs, decompositions=decompositions)
        report.nodes = report.op_counts["fx"] = len(normalized.graph_module.graph.nodes)
        with phase(report, "import"):
            module = import_normalized(normalized)
        keep_module(report, "imported", module)
        names = [node.name for node in normalized.graph_module.graph.find_nodes(op="placeholder")]
        report.mutated = [names[position] for position in written_arguments(module)]
        report.op_counts["import"] = count_ops(module)

        def on_pass(name: str, seconds: float) -> None:
            record_phase(report, name, seconds)
            report.op_counts[name] = count_ops(module)

        # A module that was just imported states the effects of its calls by construction.
        passes = pipeline = options.pipeline(decompose=decompositions is not None)
        if needs_group_places(pipeline):
            # Not there in a torch without collectives.
            from vllm_ir.frontends.distributed.group_places import attach_group_places

            attach_group_places(module)
        if inductor:
            passes, _ = split_passes(passes)
        validator = validator_for(options, report)
        store = _trace_store(inductor)
        with store.in_force():
            run_passes(module, passes, on_pass=on_pass, check=False, between=validator and validator.between)
        report.traced, report.traces_loaded = store.traced, store.loaded
        if inductor:
            with phase(report, "key"):
                report.cache_key = cache_key(module, pipeline)
    record_decisions(report, module)
    keep_module(report, "lowered", module)
    return normalized, module


def _trace_store(inductor: bool) -> TraceStore:
    """Where traced implementations are kept: beside Inductor's artifacts, if they are kept and casts come from nowhere.

    Autocast adds casts to what is traced.
    """
    directory = own_directory() if inductor and not autocast_enabled() else None
    return TraceStore(None) if directory is None else TraceStore(directory / "traces", tracing_facts())


def validator_for(options: CompileOptions, report: CompileReport) -> Validator | None:
    """What validates the passes of a compilation, if that is asked for; verdicts go into the report."""
    if options.validate is None:
        return None
    from vllm_ir.tools.validation.validator import Validator  # brings the interpreter, which others do without

    return Validator(options.validate, report=lambda verdict: report.verdicts.append(str(verdict)))


def export_complete(
    normalized: Normalized, module: ModuleOp, like: fx.GraphModule | None = None, *, inductor: bool = False
) -> ExportedGraph:
    """The module as one graph, with the values and symbols of the normalised graph.

    Module attributes are taken from `like`; without it they are trailing placeholders. For Inductor, operators that
    write take a form which it leaves alone.
    """
    mode = normalized.fake_mode
    return export_graph(module, like, inputs=normalized.inputs, fake_mode=mode, opaque=inductor, trusted=True)


def written_arguments(module: ModuleOp) -> list[int]:
    """Positions of the arguments of the main function whose contents change, or may because they are given away."""
    main = _main(module)
    return [i for i in range(len(main.block.args)) if {MUTATED, DONATED} & main.argument_attributes(i).keys()]


def overlapping_arguments(module: ModuleOp) -> list[list[int]]:
    """Groups of arguments of the main function that share memory."""
    main = _main(module)
    groups: dict[int, list[int]] = {}
    for position in range(len(main.block.args)):
        number = main.argument_attributes(position).get(STORAGE)
        if isinstance(number, IntegerAttr):
            groups.setdefault(number.value.data, []).append(position)
    return list(groups.values())


def without_values(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph without what earlier tracing noted about its values: sizes, symbols, sharing of storages."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        for key in ("val", "example_value"):
            node.meta.pop(key, None)
    return fx.GraphModule(gm, graph)


def _main(module: ModuleOp) -> FuncOp:
    for op in module.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == MAIN:
            return op
    raise ValueError(f"the module has no function @{MAIN}")
