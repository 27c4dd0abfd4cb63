"""Llama with a static KV cache through `torch.compile(backend="vllm_ir")`, compared with eager and plain Inductor.

    python examples/llama_static_cache.py [--layers 4] [--hidden 256] [--steps 16] [--backend vllm_ir] [--keep DIR]

The model has random weights. A prompt and greedy decoding steps run in eager mode, with plain Inductor and with the
backend: tokens must be the same, logits and caches must agree to the rounding of float32. Then one decoding step goes
through its text and `vllm-ir-opt` and is run again. The exit status is 1 if any result differs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("VLLM_IR_PROGRESS", "1")  # phases and their seconds, on stderr

import torch
from llama_decoder import Size, Step, cache_tensors, generate, make_cache, make_model, make_step
from rich.console import Console
from rich.table import Table
from side_by_side import (
    WARM_UP,
    Candidate,
    Generation,
    Program,
    differences,
    first_run,
    graph_table,
    make_table,
    progress,
    speed_table,
    start_inductor,
    time_steps,
)
from text_round_trip import Comparison, check_decode_graph, check_decode_step
from transformers import StaticCache

PROMPT_LENGTH = 12
# Logits and cached keys are below 10, and the sums behind them have hundreds of float32 terms: a few units in the last
# place, should another order of summation add up against us everywhere.
TOLERANCE = 1e-5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit status."""
    options = _options(arguments)
    size = Size(layers=options.layers, hidden=options.hidden, cache_length=PROMPT_LENGTH + options.steps + 4)
    with nullcontext(options.keep) if options.keep is not None else TemporaryDirectory() as directory:
        return _run(options, size, Path(directory))


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


def _run(options: argparse.Namespace, size: Size, directory: Path) -> int:
    console = Console()
    console.print(
        f"Llama, {size.layers} layers of width {size.hidden}, float32; {PROMPT_LENGTH} prompt tokens, "
        f"{options.steps} steps; {torch.get_num_threads()} threads"
    )
    program = _program(size, options.steps)
    baseline = [] if options.no_inductor else ["inductor"]
    if baseline or options.backend == "vllm_ir":
        start_inductor()
    candidates = [first_run(name, program) for name in ("eager", *baseline, options.backend)]
    with progress("timing"):
        time_steps(candidates, program)
    console.print(graph_table(options.backend))
    console.print(speed_table(candidates))
    comparisons = list(_through_text(program.step, candidates[0], directory))
    console.print(_text_table(comparisons))
    failures = [*_failures(candidates), *(f"{c.name}: off by {c.difference:.2g}" for c in comparisons if not c.passed)]
    for failure in failures:
        console.print(f"[red]FAILED[/red] {failure}")
    console.print("FAILED" if failures else "All results agree.")
    return 1 if failures else 0


def _program(size: Size, steps: int) -> Program[StaticCache]:
    prompt = torch.arange(1, 1 + PROMPT_LENGTH).reshape(1, PROMPT_LENGTH)

    def from_prompt(step: Step, cache: StaticCache) -> Generation:
        return generate(step, prompt, cache, steps)

    return Program(make_step(make_model(size)), lambda: make_cache(size), cache_tensors, from_prompt)


def _through_text(step: Step, eager: Candidate[StaticCache], directory: Path) -> Iterator[Comparison]:
    ids = torch.tensor([eager.first.tokens[-1:]])
    cache = eager.cache
    for checks in (
        lambda: check_decode_graph(step, ids, cache, directory),
        lambda: check_decode_step(directory, TOLERANCE),
    ):
        with progress("through text and vllm-ir-opt"):
            yield from checks()


def _failures(candidates: Sequence[Candidate[StaticCache]]) -> Iterator[str]:
    """What is not as in eager mode."""
    return differences(candidates, TOLERANCE)


def _text_table(comparisons: Sequence[Comparison]) -> Table:
    table = make_table("Run again from text", "", "lines", "difference", "limit", "")
    for c in comparisons:
        table.add_row(c.name, str(c.lines), f"{c.difference:.2g}", f"{c.limit:.2g}", "ok" if c.passed else "FAILED")
    return table


if __name__ == "__main__":
    sys.exit(main())
