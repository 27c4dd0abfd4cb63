"""Greedy decoding by several compilers side by side: what each of them gives, and the tables about it."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from rich.table import Table
from torch import Tensor
from torch._inductor.utils import fresh_cache

import vllm_ir as ir

ROUNDS = 3
WARM_UP = 2
_LEVELS = {
    "fx": "graph nodes (ATen)",
    "import": "ops at buffer level",
    "functionalize": "ops at tensor level",
    "lower": "ops after lower",
    "export": "exported graph nodes",
}

Cache = TypeVar("Cache")
Step = Callable[..., Tensor]
"""Token ids `(sequences, n)`, and more, to logits `(sequences, n, vocabulary)`."""


@dataclass(frozen=True)
class Generation:
    """What greedy decoding gave."""

    tokens: list[int]
    logits: Tensor
    """Logits that each token was chosen from, `(tokens, vocabulary)`."""
    seconds: list[float]
    """Time of each call: the prompt first, then one token at a time."""


@torch.no_grad()
def greedy(call: Callable[[Tensor], Tensor], prompt: Tensor, steps: int) -> Generation:
    """Run the prompt and then `steps` greedy steps; `call` takes token ids to logits."""
    ids, tokens, logits, seconds = prompt, list[int](), list[Tensor](), list[float]()
    for _ in range(1 + steps):
        start = time.perf_counter()
        result = call(ids)
        seconds.append(time.perf_counter() - start)
        last = result[:, -1].clone()
        ids = last.argmax(-1, keepdim=True)
        logits.append(last)
        tokens.extend(ids.flatten().tolist())
    return Generation(tokens, torch.cat(logits), seconds)


@dataclass(frozen=True)
class Program(Generic[Cache]):
    """A decoder, and how to generate with it or with what a compiler made of it."""

    step: Step
    make_cache: Callable[[], Cache]
    cache_tensors: Callable[[Cache], Sequence[Tensor]]
    """Everything that a step writes."""
    generate: Callable[[Step, Cache], Generation]
    """Greedy decoding from an empty cache."""


@dataclass
class Candidate(Generic[Cache]):
    """One way to run the model, and what came of it."""

    name: str
    step: Step
    cache: Cache
    first: Generation
    """The first generation; the prompt and the first step include compiling."""
    cached: list[Tensor]
    """The cache after it."""
    milliseconds: list[float]
    """Times of warm decoding steps."""


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on stderr how long a block took."""
    start = time.perf_counter()
    yield
    print(f"{what} {time.perf_counter() - start:.2f} s", file=sys.stderr, flush=True)


def start_inductor() -> None:
    """Do what Inductor does once in a process, so that nobody's first call contains it."""
    with progress("starting Inductor"), fresh_cache():
        torch.compile(lambda x: x + 1)(torch.ones(8))


def first_run(name: str, program: Program[Cache], options: Mapping[str, Any] | None = None) -> Candidate[Cache]:
    """Compile and generate once. Each compiler starts with empty caches; eager mode is the one named `eager`."""
    ir.clear_compile_reports()
    cache = program.make_cache()
    step = program.step
    if name != "eager":
        step = torch.compile(step, backend=name, fullgraph=True, dynamic=False, options=dict(options or {}))
    with progress(f"{name}: first generation"), nullcontext() if name == "eager" else fresh_cache():
        first = program.generate(step, cache)
    return Candidate(name, step, cache, first, [tensor.clone() for tensor in program.cache_tensors(cache)], [])


def time_steps(candidates: Iterable[Candidate[Cache]], program: Program[Cache]) -> None:
    """Time the decoding steps of all candidates in turns, so that a busy machine slows all of them."""
    for _ in range(ROUNDS):
        for candidate in candidates:
            seconds = program.generate(candidate.step, candidate.cache).seconds
            candidate.milliseconds.extend(1000 * value for value in seconds[1 + WARM_UP :])


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """Largest absolute difference; infinite for another shape or dtype, NaN where one is NaN."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    return (ours.double() - theirs.double()).abs().max().item()


def differences(candidates: Sequence[Candidate[Cache]], tolerance: float) -> Iterator[str]:
    """What is not as with the first candidate, which is eager mode."""
    eager, *others = candidates
    for other in others:
        if other.first.tokens != eager.first.tokens:
            yield f"{other.name}: tokens {other.first.tokens}, eager gives {eager.first.tokens}"
        for what, difference in (("logits", _logits_off(other, eager)), ("cache", _cache_off(other, eager))):
            if not difference <= tolerance:
                yield f"{other.name}: {what} off by {difference:.2g}, the limit is {tolerance:.2g}"


def _logits_off(candidate: Candidate[Cache], eager: Candidate[Cache]) -> float:
    return largest_difference(candidate.first.logits, eager.first.logits)


def _cache_off(candidate: Candidate[Cache], eager: Candidate[Cache]) -> float:
    off = [largest_difference(a, b) for a, b in zip(candidate.cached, eager.cached, strict=True)]
    return torch.tensor(off, dtype=torch.float64).max().item()


def make_table(title: str, *columns: str) -> Table:
    """An empty table of figures; the first column holds names."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table


def graph_names(count: int) -> list[str]:
    """What the graphs that one program was compiled to are called, in the order of their reports."""
    return ["prompt", "step", *map(str, range(2, count))][:count]


def graph_table(backend: str) -> Table:
    """One column per compiled graph."""
    reports = ir.compile_reports()
    last = reports[-1]
    table = make_table(f"Graphs of {backend}", "", *graph_names(len(reports)))

    def row(name: str, values: Iterable[object]) -> None:
        table.add_row(name, *map(str, values))

    row("mutated arguments", (len(report.mutated) for report in reports))
    for stage in last.op_counts:
        row(_LEVELS.get(stage, f"after {stage}: ops"), (report.op_counts[stage] for report in reports))
    row("clones inserted", (report.clones_inserted for report in reports))
    row("clones removed", (report.clones_removed for report in reports))
    row("copies in the report", (len(report.copies) for report in reports))
    for stage in last.pass_seconds:
        row(f"{stage}, ms", (f"{1000 * report.pass_seconds[stage]:.1f}" for report in reports))
    return table


def speed_table(candidates: Sequence[Candidate[Cache]]) -> Table:
    """One column per candidate, eager mode first."""
    eager = candidates[0]
    table = make_table("Against eager mode", "", *(candidate.name for candidate in candidates))
    first = [candidate.first.seconds for candidate in candidates]
    table.add_row("first call, prompt, s", *(f"{seconds[0]:.2f}" for seconds in first))
    table.add_row("first call, step, s", *(f"{seconds[1]:.2f}" for seconds in first))
    table.add_row("step, median ms", *(f"{statistics.median(candidate.milliseconds):.2f}" for candidate in candidates))
    table.add_row("tokens equal", *("yes" if c.first.tokens == eager.first.tokens else "NO" for c in candidates))
    table.add_row("largest logits difference", *(f"{_logits_off(c, eager):.2g}" for c in candidates))
    table.add_row("largest cache difference", *(f"{_cache_off(c, eager):.2g}" for c in candidates))
    return table
