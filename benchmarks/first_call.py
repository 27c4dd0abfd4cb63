"""Wall time of the first call of a compiled Llama decoding step, and which share of it is this compiler's own work."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))  # the decoder

import torch
from llama_decoder import Size, make_cache, make_model, make_step
from rich import box
from rich.table import Table
from torch._inductor.utils import fresh_cache

import vllm_ir as ir
from vllm_ir.tools.reports import CompileReport


@dataclass(frozen=True)
class FirstCall:
    """One first call."""

    layers: int
    seconds: float
    report: CompileReport

    @property
    def outside(self) -> float:
        """Seconds that no phase accounts for: Dynamo, guards, and the step itself."""
        return self.seconds - sum(self.report.pass_seconds.values())

    @property
    def own_share(self) -> float:
        """Percent of the time that is neither Dynamo's nor make_fx's nor Inductor's."""
        return 100 * self.report.own_seconds / self.seconds


def first_call(layers: int, hidden: int) -> FirstCall:
    """Compile a decoding step of a transformers Llama with a static cache, with nothing compiled before."""
    size = Size(layers=layers, hidden=hidden)
    model, cache, ids = make_model(size), make_cache(size), torch.tensor([[1]])
    torch._dynamo.reset()
    ir.clear_compile_reports()
    with torch.no_grad(), fresh_cache():
        # What a process loads once, at whatever it compiles first.
        torch.compile(lambda x: x + 1, backend="vllm_ir")(ids)
        step = torch.compile(make_step(model), backend="vllm_ir", fullgraph=True, dynamic=False)
        start = time.perf_counter()
        step(ids, cache)
        seconds = time.perf_counter() - start
    return FirstCall(layers, seconds, ir.compile_reports()[-1])


def first_call_table(calls: Sequence[FirstCall]) -> Table:
    """One column per depth; all that is not a percentage is in seconds."""
    table = Table(
        "layers", *(str(call.layers) for call in calls), title="first call, s", box=box.SIMPLE, pad_edge=False
    )
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("nodes", *(str(call.report.nodes) for call in calls))
    rows = {"whole call": [call.seconds for call in calls], "Dynamo and the step": [call.outside for call in calls]}
    for phase in calls[-1].report.pass_seconds:
        rows[phase] = [call.report.pass_seconds.get(phase, 0.0) for call in calls]
    rows["own: all but Dynamo, normalize and backend"] = [call.report.own_seconds for call in calls]
    for name, values in rows.items():
        table.add_row(name, *(f"{value:.2f}" for value in values))
    table.add_row("own, % of the whole call", *(f"{call.own_share:.2f}" for call in calls))
    return table
