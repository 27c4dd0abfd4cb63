"""Llama with a static KV cache through `torch.compile(backend="vllm_ir")`, compared with eager and plain Inductor.

    python examples/llama_static_cache.py [--layers 4] [--hidden 256] [--steps 16] [--backend vllm_ir] [--keep DIR]

The model has random weights. A prompt and greedy decoding steps run in eager mode, with plain Inductor and with the
backend: tokens must be the same, logits and caches must agree to the rounding of float32. Then one decoding step goes
through its text and `vllm-ir-opt` and is run again. The exit status is 1 if any result differs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("VLLM_IR_PROGRESS", "1")  # phases and their seconds, on stderr

import torch
from llama_decoder import (
    Generation,
    Size,
    Step,
    cache_tensors,
    generate,
    largest_difference,
    make_cache,
    make_model,
    make_step,
)
from rich.console import Console
from rich.table import Table
from text_round_trip import Comparison, check_decode_graph, check_decode_step
from torch import Tensor
from torch._inductor.utils import fresh_cache
from transformers import StaticCache

import vllm_ir as ir

PROMPT_LENGTH = 12
ROUNDS = 3
WARM_UP = 2
# Logits and cached keys are below 10, and the sums behind them have hundreds of float32 terms: a few units in the last
# place, should another order of summation add up against us everywhere.
TOLERANCE = 1e-5
_LEVELS = {
    "fx": "graph nodes (ATen)",
    "import": "ops at buffer level",
    "functionalize": "ops at tensor level",
    "lower": "ops after lower",
    "export": "exported graph nodes",
}


@dataclass
class Candidate:
    """One way to run the model, and what came of it."""

    name: str
    step: Step
    cache: StaticCache
    first: Generation
    """The first generation; the prompt and the first step include compiling."""
    cached: list[Tensor]
    """The cache after it."""
    milliseconds: list[float]
    """Times of warm decoding steps."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit status."""
    options = _options(arguments)
    size = Size(layers=options.layers, hidden=options.hidden, cache_length=PROMPT_LENGTH + options.steps + 4)
    step = make_step(make_model(size))
    prompt = torch.arange(1, 1 + PROMPT_LENGTH).reshape(1, PROMPT_LENGTH)
    with nullcontext(options.keep) if options.keep is not None else TemporaryDirectory() as directory:
        return _run(options, size, step, prompt, Path(directory))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4, help="decoder layers (4)")
    parser.add_argument("--hidden", type=int, default=256, help="hidden size, a multiple of 16 (256)")
    parser.add_argument("--steps", type=int, default=16, help="decoding steps after the prompt (16)")
    parser.add_argument("--backend", default="vllm_ir", choices=["vllm_ir", "vllm_ir_eager"])
    parser.add_argument("--no-inductor", action="store_true", help="leave out plain Inductor")
    parser.add_argument("--keep", metavar="DIR", type=_directory, help="keep the texts in this directory")
    options = parser.parse_args(arguments)
    if options.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}, the steps that are not timed")
    if options.layers < 1 or options.hidden < 16 or options.hidden % 16:
        parser.error("--layers must be positive, --hidden a multiple of 16")
    return options


def _directory(name: str) -> Path:
    path = Path(name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _run(options: argparse.Namespace, size: Size, step: Step, prompt: Tensor, directory: Path) -> int:
    console = Console()
    console.print(
        f"Llama, {size.layers} layers of width {size.hidden}, float32; {PROMPT_LENGTH} prompt tokens, "
        f"{options.steps} steps; {torch.get_num_threads()} threads"
    )
    baseline = [] if options.no_inductor else ["inductor"]
    if baseline or options.backend == "vllm_ir":
        with _progress("starting Inductor"), fresh_cache():
            torch.compile(lambda x: x + 1)(prompt)
    candidates = [_first_run(name, size, step, prompt, options.steps) for name in ("eager", *baseline, options.backend)]
    with _progress("timing"):
        _time(candidates, prompt, options.steps)
    console.print(_graph_table(options.backend))
    console.print(_speed_table(candidates))
    eager = candidates[0]
    comparisons = list(_through_text(step, eager, directory))
    console.print(_text_table(comparisons))
    failures = [*_failures(candidates), *(f"{c.name}: off by {c.difference:.2g}" for c in comparisons if not c.passed)]
    for failure in failures:
        console.print(f"[red]FAILED[/red] {failure}")
    console.print("FAILED" if failures else "All results agree.")
    return 1 if failures else 0


@contextmanager
def _progress(what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"{what} {time.perf_counter() - start:.2f} s", file=sys.stderr, flush=True)


def _first_run(name: str, size: Size, step: Step, prompt: Tensor, steps: int) -> Candidate:
    """Compile and generate once. Each compiler starts with empty caches."""
    ir.clear_compile_reports()
    cache = make_cache(size)
    function = step if name == "eager" else torch.compile(step, backend=name, fullgraph=True, dynamic=False)
    with _progress(f"{name}: first generation"), nullcontext() if name == "eager" else fresh_cache():
        first = generate(function, prompt, cache, steps)
    cached = [tensor.clone() for tensor in cache_tensors(cache)]
    return Candidate(name, function, cache, first, cached, [])


def _time(candidates: Iterable[Candidate], prompt: Tensor, steps: int) -> None:
    """Time the decoding steps of all candidates in turns, so that a busy machine slows all of them."""
    for _ in range(ROUNDS):
        for candidate in candidates:
            seconds = generate(candidate.step, prompt, candidate.cache, steps).seconds
            candidate.milliseconds.extend(1000 * value for value in seconds[1 + WARM_UP :])


def _through_text(step: Step, eager: Candidate, directory: Path) -> Iterator[Comparison]:
    ids = torch.tensor([eager.first.tokens[-1:]])
    cache = eager.cache
    for checks in (
        lambda: check_decode_graph(step, ids, cache, directory),
        lambda: check_decode_step(directory, TOLERANCE),
    ):
        with _progress("through text and vllm-ir-opt"):
            yield from checks()


def _failures(candidates: Sequence[Candidate]) -> Iterator[str]:
    """What is not as in eager mode."""
    eager, *others = candidates
    for other in others:
        if other.first.tokens != eager.first.tokens:
            yield f"{other.name}: tokens {other.first.tokens}, eager gives {eager.first.tokens}"
        for what, difference in (("logits", _logits_off(other, eager)), ("cache", _cache_off(other, eager))):
            if not difference <= TOLERANCE:
                yield f"{other.name}: {what} off by {difference:.2g}, the limit is {TOLERANCE:.2g}"


def _logits_off(candidate: Candidate, eager: Candidate) -> float:
    return largest_difference(candidate.first.logits, eager.first.logits)


def _cache_off(candidate: Candidate, eager: Candidate) -> float:
    differences = [largest_difference(a, b) for a, b in zip(candidate.cached, eager.cached, strict=True)]
    return torch.tensor(differences, dtype=torch.float64).max().item()


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table


def _graph_table(backend: str) -> Table:
    """One column per compiled graph."""
    reports = ir.compile_reports()
    last = reports[-1]
    table = _table(f"Graphs of {backend}", "", *("prompt", "step", *map(str, range(2, len(reports))))[: len(reports)])

    def row(name: str, values: Iterable[object]) -> None:
        table.add_row(name, *map(str, values))

    row("mutated arguments", (len(report.mutated) for report in reports))
    for stage in last.op_counts:
        row(_LEVELS.get(stage, f"after {stage}: ops"), (report.op_counts[stage] for report in reports))
    for stage in last.pass_seconds:
        row(f"{stage}, ms", (f"{1000 * report.pass_seconds[stage]:.1f}" for report in reports))
    return table


def _speed_table(candidates: Sequence[Candidate]) -> Table:
    eager = candidates[0]
    table = _table("Against eager mode", "", *(candidate.name for candidate in candidates))
    first = [candidate.first.seconds for candidate in candidates]
    table.add_row("first call, prompt, s", *(f"{seconds[0]:.2f}" for seconds in first))
    table.add_row("first call, step, s", *(f"{seconds[1]:.2f}" for seconds in first))
    table.add_row("step, median ms", *(f"{statistics.median(candidate.milliseconds):.2f}" for candidate in candidates))
    table.add_row("tokens equal", *("yes" if c.first.tokens == eager.first.tokens else "NO" for c in candidates))
    table.add_row("largest logits difference", *(f"{_logits_off(c, eager):.2g}" for c in candidates))
    table.add_row("largest cache difference", *(f"{_cache_off(c, eager):.2g}" for c in candidates))
    return table


def _text_table(comparisons: Sequence[Comparison]) -> Table:
    table = _table("Run again from text", "", "lines", "difference", "limit", "")
    for c in comparisons:
        table.add_row(c.name, str(c.lines), f"{c.difference:.2g}", f"{c.limit:.2g}", "ok" if c.passed else "FAILED")
    return table


if __name__ == "__main__":
    sys.exit(main())
