"""What a compilation leaves behind for those who look into it: log messages, `tlparse` artifacts, files.

* The logger `vllm_ir` and those below it say at DEBUG which implementation each operation got and which were passed
  over, whether a graph came from Inductor's cache, and what the passes took. `VLLM_LOGGING_LEVEL=DEBUG` or
  `TORCH_LOGS="+vllm_ir"` turn that on.
* `TORCH_TRACE=<folder>` makes PyTorch write a structured trace, which `tlparse` shows; it gets the IR in front of and
  behind the passes, and the report.
* `TORCH_COMPILE_DEBUG=1` makes PyTorch keep a folder for each run; the same goes to `vllm_ir/` in it, as files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_ir.tools.files import write_whole
from vllm_ir.tools.torch_internals import debug_directory, trace_artifact

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from vllm_ir.tools.reports import CompileReport

_logger = logging.getLogger("vllm_ir.compile")


def keep_module(report: CompileReport, stage: str, module: ModuleOp) -> None:
    """Leave the text of a module behind, as it is at a stage (`imported`, `lowered`), where somebody wants it."""
    _keep(f"graph_{report.graph_id}_{stage}.mlir", "string", lambda: f"{module}\n")


def keep_report(report: CompileReport) -> None:
    """Leave a finished report behind."""
    if _logger.isEnabledFor(logging.DEBUG):
        _log(report)
    _keep(f"graph_{report.graph_id}_report.json", "json", lambda: json.dumps(asdict(report), indent=2) + "\n")


def _keep(name: str, encoding: str, text: Callable[[], str]) -> None:
    trace_artifact(f"vllm_ir_{name}", encoding, text)
    folder = debug_directory()
    if folder is None:
        return
    path = Path(folder, "vllm_ir", name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text().encode())
    except OSError as error:
        _logger.warning("%s is not written: %s", path, error)


def _log(report: CompileReport) -> None:
    graph = f"graph {report.graph_id} ({report.backend}, {report.kind})"
    for op, nodes in report.selected_impls.items():
        for node, provider in nodes.items():
            passed_over = report.rejected_impls.get(op, {}).get(node, [])
            reasons = "".join(f"; {other!r} passed over: {reason}" for other, reason in passed_over)
            _logger.debug("%s: vllm_ir.%s %s: %r%s", graph, op, node, provider, reasons)
    for op, location, reason in report.copies:
        _logger.debug("%s: a copy is left, %s at %s: %s", graph, op, location, reason)
    if report.from_cache:
        _logger.debug("%s: Inductor's part came from its cache", graph)
    if report.traced or report.traces_loaded:
        _logger.debug("%s: %d implementations traced, %d from the cache", graph, report.traced, report.traces_loaded)
    times = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in report.pass_seconds.items())
    counts = ", ".join(f"{count} after {stage}" for stage, count in report.op_counts.items())
    _logger.debug("%s: %s; operations: %s", graph, times, counts)
    for verdict in report.verdicts:
        _logger.debug("%s: %s", graph, verdict)
