"""What the compiler did to each graph, and progress while it works."""

import logging
import os
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import cast

import torch
from torch import fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, auto_functionalized_v2
from torch.utils._pytree import tree_leaves
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute

from vllm_ir.conversions.eliminate_clones import CLONES
from vllm_ir.conversions.fuse import FUSED, UNFUSED, UNLIKE
from vllm_ir.conversions.lower import REJECTED, SELECTED
from vllm_ir.dialects.torch.arguments import children
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.opaque import written_on_copies
from vllm_ir.frontends.fx.schemas import scattered_view, writes_parts
from vllm_ir.frontends.fx.storages import argument_of, nodes_in
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload, schema_of
from vllm_ir.tools.debug_artifacts import keep_report
from vllm_ir.tools.fusion_explanation import fused, unfused, unlike
from vllm_ir.tools.logs import set_up_logging, show_progress

_CLONES = (torch.ops.aten.clone.default, torch.ops.aten.lift_fresh_copy.default)


COLLECTIVES = ("sharded_sums", "unsharded_sums", "collective_bytes", "split_products", "unsplit_products")
"""What passes on collectives note on a module, as `vllm_ir.<name>`."""

NOTES = (FUSED, UNFUSED, UNLIKE, SELECTED, REJECTED, CLONES, *(f"vllm_ir.{name}" for name in COLLECTIVES))
"""Attributes of a module that passes leave for reports."""


@dataclass
class CompileReport:
    """One compiled graph. Times are in seconds."""

    graph_id: int
    """Counts the graphs of this process from 0, those that failed to compile included."""
    backend: str
    """`"vllm_ir"` or `"vllm_ir_eager"`."""
    kind: str
    """`"inference"`, or `"forward"` or `"backward"` of a graph with gradients."""
    nodes: int = 0
    """Nodes of the ATen graph that was imported."""
    mutated: list[str] = field(default_factory=lambda: [])
    """Names of the arguments that the graph writes."""
    selected_impls: dict[str, dict[str, str]] = field(default_factory=lambda: {})
    """`{op: {node: provider}}`."""
    rejected_impls: dict[str, dict[str, list[tuple[str, str]]]] = field(default_factory=lambda: {})
    """`{op: {node: [(provider, reason)]}}`: providers that were asked before the selected one."""
    fusions: dict[str, list[str]] = field(default_factory=lambda: {})
    """`{fusion: [place]}`, where each was applied; a place is `file:line` of the last operation, or its name."""
    unfused: dict[str, list[str]] = field(default_factory=lambda: {})
    """`{fusion: [place: reason]}` of what came close, with the option `explain_fusions`."""
    unlike: dict[str, list[str]] = field(default_factory=lambda: {})
    """`{fusion: [operator]}` of all other fusions, with that option: what the program would need at least."""
    collectives: dict[str, list[str]] = field(default_factory=lambda: {})
    """What `sequence-parallel` and `async-tp` did and left, by the name of their notes: `docs/sequence-parallel.md`."""
    clones_inserted: int = 0
    """Operands of calls in value form: each is by meaning a copy that the call writes."""
    clones_removed: int = 0
    """How many of them are written in place, because nobody can notice."""
    pass_seconds: dict[str, float] = field(default_factory=lambda: {})
    """Time of each phase, in order: normalize, import, every pass, export, backend."""
    op_counts: dict[str, int] = field(default_factory=lambda: {})
    """Operations of the graph at each stage: fx, import, every pass, export."""
    from_cache: bool = False
    """Whether Inductor has taken its part from its cache."""
    cache_key: str = ""
    """What Inductor's cache has the graph under, beside its own key; empty without Inductor."""
    traced: int = 0
    """How many implementations were traced; each is once for all operations with the same operands."""
    traces_loaded: int = 0
    """How many were read from the cache instead."""
    verdicts: list[str] = field(default_factory=lambda: [])
    """What validation found about each pass, a line each; empty without `validate`."""
    copies: list[tuple[str, str, str]] = field(default_factory=lambda: [])
    """`(op, "file:line", reason)` of what still moves a tensor's data into a new buffer in the exported graph."""

    @property
    def own_seconds(self) -> float:
        """Time of the phases that are this compiler's work: all but `normalize` (make_fx) and `backend` (Inductor)."""
        return sum(seconds for name, seconds in self.pass_seconds.items() if name not in ("normalize", "backend"))


_lock = threading.Lock()
_ids = count()
_reports: list[CompileReport] = []


def compile_reports() -> list[CompileReport]:
    """One report per graph compiled so far, oldest first."""
    with _lock:
        return list(_reports)


def clear_compile_reports() -> None:
    """Forget all reports; graph ids go on counting."""
    with _lock:
        _reports.clear()


@contextmanager
def recording(backend: str, kind: str) -> Generator[CompileReport]:
    """A new report, which is published when the block ends without an error."""
    report = CompileReport(next(_ids), backend, kind)
    set_up_logging()
    yield report
    keep_report(report)
    with _lock:
        _reports.append(report)


@contextmanager
def phase(report: CompileReport, name: str) -> Generator[None]:
    """Time one phase of a compilation; see `record_phase`."""
    start = time.perf_counter()
    yield
    record_phase(report, name, time.perf_counter() - start)


def record_phase(report: CompileReport, name: str, seconds: float) -> None:
    """Note the time of a phase, and say so where progress is shown. Phases of the same name add up."""
    report.pass_seconds[name] = report.pass_seconds.get(name, 0.0) + seconds
    if _shows_progress():
        show_progress()
        logging.getLogger("vllm_ir").info("vllm_ir: graph %d: %s %.2f s", report.graph_id, name, seconds)


def _shows_progress() -> bool:
    chosen = os.environ.get("VLLM_IR_PROGRESS")
    return sys.stderr.isatty() if chosen is None else chosen not in ("", "0")


def selected_impls(module: ModuleOp) -> dict[str, dict[str, str]]:
    """`{op: {node: provider}}` of a module that was lowered."""
    return {
        op: {node: _text(provider) for node, provider in nodes.items()}
        for op, nodes in _entries_by_op(module, SELECTED)
    }


def rejected_impls(module: ModuleOp) -> dict[str, dict[str, list[tuple[str, str]]]]:
    """`{op: {node: [(provider, reason)]}}` of a module that was lowered."""
    return {
        op: {node: [(name, _text(reason)) for name, reason in _entries(reasons)] for node, reasons in nodes.items()}
        for op, nodes in _entries_by_op(module, REJECTED)
    }


def record_decisions(report: CompileReport, module: ModuleOp) -> None:
    """Fill in what the passes have noted on the module.

    That is what was fused, which implementations were chosen and which passed over, and what became of calls in value
    form.
    """
    report.fusions, report.unfused, report.unlike = fused(module), unfused(module), unlike(module)
    report.collectives = {
        name: list(map(_text, children(note)))
        for name in COLLECTIVES
        if (note := module.attributes.get(f"vllm_ir.{name}")) is not None
    }
    report.selected_impls, report.rejected_impls = selected_impls(module), rejected_impls(module)
    if isinstance(clones := module.attributes.get(CLONES), DictionaryAttr):
        counts = {name: int(count.value.data) for name, count in clones.data.items() if isinstance(count, IntegerAttr)}
        report.clones_inserted, report.clones_removed = counts["inserted"], counts["removed"]


def _entries_by_op(module: ModuleOp, name: str) -> Iterator[tuple[str, dict[str, Attribute]]]:
    if (attribute := module.attributes.get(name)) is not None:
        for op, nodes in _entries(attribute):
            yield op, dict(_entries(nodes))


def _entries(attribute: Attribute) -> Iterable[tuple[str, Attribute]]:
    return attribute.data.items() if isinstance(attribute, DictionaryAttr) else ()


def _text(attribute: Attribute) -> str:
    return attribute.data if isinstance(attribute, StringAttr) else str(attribute)


def record_copies(report: CompileReport, graph: fx.Graph, reasons: Mapping[fx.Node, str]) -> None:
    """Fill in the copies that an exported graph makes, with the reasons that are known, and the size of the graph."""
    report.op_counts["export"] = len(graph.nodes)
    report.copies = list(copies_in(graph, reasons, fused=report.backend == "vllm_ir"))


@dataclass(frozen=True)
class Outcome:
    """What the hook behind Inductor's passes did to a graph."""

    updates: int
    """Operands of calls in value form."""
    copied: int
    """How many of them are written on copies."""
    copies: list[tuple[str, str, str]]
    """Operator, location and reason of each copy in the graph."""
    seconds: float


def record_outcome(report: CompileReport, outcome: Outcome) -> None:
    """Fill in what became of the updates in a graph that Inductor has worked on."""
    report.clones_inserted, report.clones_removed = outcome.updates, outcome.updates - outcome.copied
    report.copies = outcome.copies
    report.pass_seconds["eliminate-clones"] = outcome.seconds
    report.pass_seconds["backend"] -= outcome.seconds


def copies_in(
    graph: fx.Graph, reasons: Mapping[fx.Node, str], *, fused: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Operator, location and reason of each copy of a tensor in a graph.

    With `fused`, Inductor compiles the graph: a slice that is put into a value is a part of the kernel that uses it.
    """
    for node in graph.nodes:
        if node in reasons or node.target in _CLONES:
            yield str(node.target), _location(node), reasons.get(node, "a copy of the program's own")
        elif node.target in (auto_functionalized, auto_functionalized_v2):
            op = cast(Overload, node.args[0])
            for name, number in _written_tensors(node, op).items():
                reason = f"functional call: argument {name!r} is written on a copy"
                yield from [(str(op), _location(node), reason)] * number
        elif not is_overload(node.target):
            continue
        elif writes_parts(node.target) or (not fused and scattered_view(node.target) is not None):
            yield str(node.target), _location(node), "its result is new memory, with the old contents"
        elif (written := written_on_copies(node.target)) is not None:
            for name in written.arguments:
                value = argument_of(node, [a.name for a in schema_of(node.target).arguments].index(name), name)
                reason = f"functional call: argument {name!r} is written on a copy"
                yield from [(str(written.overload), _location(node), reason)] * sum(True for _ in nodes_in(value))


def _written_tensors(node: fx.Node, op: Overload) -> dict[str, int]:
    """How many tensors each written argument of a functional call brings."""
    bases = cast("Sequence[object]", node.kwargs.get("_all_bases", ()))
    if bases:
        return {"_all_bases": len(bases)}
    values = {
        argument.name: node.kwargs.get(argument.name) for argument in schema_of(op).arguments if argument.is_write
    }
    return {name: sum(leaf is not None for leaf in tree_leaves(value)) for name, value in values.items()}


def _location(node: fx.Node) -> str:
    location = user_location(node)
    return "unknown" if location is None else f"{location[0]}:{location[1]}"


def count_ops(module: ModuleOp) -> int:
    """Operations in all functions of a module, nested ones included."""
    return sum(1 for _ in module.walk()) - 1
