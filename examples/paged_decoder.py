"""A decoder of `vllm_ir` ops with a paged KV cache, compiled by `torch.compile(backend="vllm_ir")`.

    python examples/paged_decoder.py [--layers 4] [--hidden 256] [--steps 16] [--blocks 64] [--provider cpu]

The cache of all layers is one tensor, which every layer writes through views of it. Prompts of several sequences and
greedy decoding steps run in eager mode, with plain Inductor and with the backend: tokens must be the same, logits and
caches must agree to the rounding of float32. The exit status is 1 if any result differs. The tables show which kernels
were chosen, which copies were made, and how much memory a step allocates, against the size of the cache.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("VLLM_IR_PROGRESS", "1")  # phases and their seconds, on stderr

import torch
from paged_model import (
    BLOCK,
    HEADS,
    Places,
    Size,
    Step,
    generate,
    make_block_table,
    make_cache,
    make_model,
    make_step,
    places_at,
    registered,
)
from rich.console import Console
from rich.table import Table
from side_by_side import (
    WARM_UP,
    Candidate,
    Generation,
    Program,
    differences,
    first_run,
    graph_names,
    graph_table,
    make_table,
    progress,
    speed_table,
    start_inductor,
    time_steps,
)
from step_memory import StepMemory, step_memory
from torch import Tensor

import vllm_ir as ir

PROMPT_LENGTH = 12
NORMS = ("rms_norm", "fused_add_rms_norm")
# As in llama_static_cache.py: logits and cached keys are below 10, sums have hundreds of float32 terms.
TOLERANCE = 1e-5
MIB = 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit status."""
    options, size = _options(arguments)
    with ir.IrOpPriorityConfig(**options.ir_op_priority).apply():
        return _run(options, size)


def _options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Size]:
    parser = ir.PriorityArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4, help="decoder layers (4)")
    parser.add_argument("--hidden", type=int, default=256, help=f"hidden size, a multiple of {2 * HEADS} (256)")
    parser.add_argument("--steps", type=int, default=16, help="decoding steps after the prompts (16)")
    parser.add_argument("--sequences", type=int, default=2, help="sequences that are decoded together (2)")
    parser.add_argument("--blocks", type=int, default=64, help=f"cache blocks of {BLOCK} tokens (64)")
    parser.add_argument("--provider", help="ask this provider first for the norms, for example cpu")
    parser.add_argument("--backend", default="vllm_ir", choices=["vllm_ir", "vllm_ir_eager"])
    parser.add_argument("--no-inductor", action="store_true", help="leave out plain Inductor")
    options = parser.parse_args(arguments)
    if options.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}, the steps that are not timed")
    if options.layers < 1 or options.sequences < 1 or options.hidden < 1 or options.hidden % (2 * HEADS):
        parser.error(f"--layers and --sequences must be positive, --hidden a multiple of {2 * HEADS}")
    size = Size(
        layers=options.layers,
        hidden=options.hidden,
        sequences=options.sequences,
        length=PROMPT_LENGTH + options.steps,
        blocks=options.blocks,
    )
    least = size.sequences * size.table_width
    if size.blocks < least:
        parser.error(f"--blocks must be at least {least}, which these sequences need")
    return options, size


def _run(options: argparse.Namespace, size: Size) -> int:
    console = Console()
    console.print(
        f"Paged decoder, {size.layers} layers of width {size.hidden}, float32; {size.sequences} sequences, "
        f"{PROMPT_LENGTH} prompt tokens, {options.steps} steps; {torch.get_num_threads()} threads"
    )
    table = make_block_table(size)
    program = make_program(size, table, options.steps)
    baseline = [] if options.no_inductor else ["inductor"]
    if baseline or options.backend == "vllm_ir":
        start_inductor()
    candidates = [first_run(name, program) for name in ("eager", *baseline)]
    candidates.append(first_run(options.backend, program, _kernel_options(options.provider)))
    with progress("timing"):
        time_steps(candidates, program)
    last = places_at(table, size.length - 1, 1)
    memory = {candidate.name: _memory(candidate, last) for candidate in candidates}
    console.print(graph_table(options.backend))
    console.print(_kernel_table(options.backend))
    console.print(speed_table(candidates))
    console.print(_memory_table(memory, candidates[0].cache))
    failures = list(differences(candidates, TOLERANCE))
    for failure in failures:
        console.print(f"[red]FAILED[/red] {failure}")
    console.print("FAILED" if failures else "All results agree.")
    return 1 if failures else 0


def make_program(size: Size, table: Tensor, steps: int) -> Program[Tensor]:
    """The decoder with its prompts, which makes `steps` steps behind them."""
    count = size.sequences * PROMPT_LENGTH
    prompt = torch.arange(1, 1 + count).remainder(size.vocabulary).reshape(size.sequences, PROMPT_LENGTH)

    def from_prompt(step: Step, cache: Tensor) -> Generation:
        return generate(step, prompt, cache, table, steps)

    step = make_step(make_model(size, registered()))
    return Program(step, lambda: make_cache(size), lambda cache: [cache], from_prompt)


def _kernel_options(provider: str | None) -> Mapping[str, Any]:
    """Options of the backend that ask a provider for the norms; without one, the compiler's own order holds."""
    return {} if provider is None else {"ir_op_priority": {op: [provider] for op in NORMS}}


@torch.no_grad()
def _memory(candidate: Candidate[Tensor], places: Places) -> StepMemory:
    """Of the last decoding step, made once more on the cache that it left."""
    sequences = len(places.table)
    ids = torch.tensor(candidate.first.tokens[-2 * sequences : -sequences]).unsqueeze(-1)
    return step_memory(lambda: candidate.step(ids, places, candidate.cache))


def _kernel_table(backend: str) -> Table:
    """How often each provider was chosen for an op, and why others that were asked before it were not."""
    reports = ir.compile_reports()
    table = make_table(f"Kernels of {backend}", "op", "provider", *graph_names(len(reports)), "passed over")
    table.columns[-1].no_wrap = False
    for op in reports[0].selected_impls:
        counts = [Counter(report.selected_impls.get(op, {}).values()) for report in reports]
        for provider in sorted(set().union(*counts)):
            passed = "; ".join(f"{name}: {reason}" for name, reason in _rejections(op, provider).items())
            table.add_row(op, provider, *(str(count[provider]) for count in counts), passed)
    return table


def _rejections(op: str, chosen: str) -> dict[str, str]:
    """For each provider that was passed over in favour of `chosen`, the first reason."""
    reasons: dict[str, str] = {}
    for report in ir.compile_reports():
        for node, rejected in report.rejected_impls.get(op, {}).items():
            if report.selected_impls[op][node] == chosen:
                reasons |= {name: reason for name, reason in rejected if name not in reasons}
    return reasons


def _memory_table(memory: Mapping[str, StepMemory], cache: Tensor) -> Table:
    """What a step allocates; copies of the cache, or of a part of it, show here whatever the report says."""
    layer = cache[0, 0]
    sizes = f"the cache has {cache.nbytes / MIB:.2f} MiB, the keys of a layer {layer.nbytes / MIB:.3f} MiB"
    table = make_table(f"Memory of a step; {sizes}", "", *memory)
    table.add_row("peak, MiB", *(f"{step.peak / MIB:.3f}" for step in memory.values()))
    table.add_row("peak / cache", *(f"{step.peak / cache.nbytes:.3f}" for step in memory.values()))
    for what, least in (("the cache", cache.nbytes), ("a layer's keys", layer.nbytes)):
        table.add_row(f"allocations as large as {what}", *(str(step.count(least)) for step in memory.values()))
    return table


if __name__ == "__main__":
    sys.exit(main())
