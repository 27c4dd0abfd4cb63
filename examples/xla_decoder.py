"""The paged decoder on XLA: `torch.compile(backend="vllm_ir_xla")`, with the cache updated in the caller's memory.

    python examples/xla_decoder.py [--layers 4] [--hidden 256] [--steps 16] [--sequences 2] [--blocks 256]

XLA has no in-place operations. It is told which output is which argument, and then writes that argument's memory. The
cache of all layers is one tensor. Prompts and greedy decoding steps run in eager mode and on XLA: tokens must be the
same, logits and caches must agree to the rounding of float32, and the cache must stay where it is. The tables show what
XLA does with the memory of the cache, and what a step takes with aliases and without. The exit status is 1 if a result
differs, or if XLA copies the cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("VLLM_IR_PROGRESS", "1")  # phases and their seconds, on stderr

import torch
from paged_decoder import MIB, PROMPT_LENGTH, TOLERANCE, make_program
from paged_model import BLOCK, HEADS, Size, make_block_table, places_at
from rich.console import Console
from rich.table import Table
from side_by_side import WARM_UP, Candidate, differences, first_run, make_table, progress, speed_table, time_steps
from torch import Tensor
from xla_memory import Recorder, aliased_parameters, record, scratch, whole_writes

ROUNDS, CALLS = 5, 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit status."""
    options = _options(arguments)
    size = Size(
        layers=options.layers,
        hidden=options.hidden,
        sequences=options.sequences,
        length=PROMPT_LENGTH + options.steps,
        blocks=max(options.blocks, options.sequences * -(-(PROMPT_LENGTH + options.steps) // BLOCK)),
    )
    console = Console()
    console.print(
        f"Paged decoder on XLA, {size.layers} layers of width {size.hidden}, float32; {size.sequences} sequences, "
        f"{PROMPT_LENGTH} prompt tokens, {options.steps} steps"
    )
    table = make_block_table(size)
    program = make_program(size, table, options.steps)
    eager, ours = candidates = [first_run(name, program) for name in ("eager", "vllm_ir_xla")]
    address = ours.cache.data_ptr()
    with progress("timing"):
        time_steps(candidates, program)
    console.print(speed_table(candidates))
    places = places_at(table, size.length - 1, 1)
    with progress("export to StableHLO"):
        recorder = record(program.step, _last_ids(ours, size), places, ours.cache)
    failures = [*differences(candidates, TOLERANCE), *_memory_failures(recorder, ours.cache)]
    if ours.cache.data_ptr() != address:
        failures.append("vllm_ir_xla: the cache has moved")
    console.print(_memory_table(recorder, eager.cache))
    console.print(_alias_table(recorder))
    for failure in failures:
        console.print(f"[red]FAILED[/red] {failure}")
    console.print("FAILED" if failures else "All results agree; the cache is updated in place.")
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4, help="decoder layers (4)")
    parser.add_argument("--hidden", type=int, default=256, help=f"hidden size, a multiple of {2 * HEADS} (256)")
    parser.add_argument("--steps", type=int, default=16, help="decoding steps after the prompts (16)")
    parser.add_argument("--sequences", type=int, default=2, help="sequences that are decoded together (2)")
    parser.add_argument("--blocks", type=int, default=256, help=f"cache blocks of {BLOCK} tokens, at least (256)")
    options = parser.parse_args(arguments)
    if options.steps <= WARM_UP:
        parser.error(f"--steps must be more than {WARM_UP}, the steps that are not timed")
    if options.layers < 1 or options.sequences < 1 or options.hidden < 1 or options.hidden % (2 * HEADS):
        parser.error(f"--layers and --sequences must be positive, --hidden a multiple of {2 * HEADS}")
    return options


def _last_ids(candidate: Candidate[Tensor], size: Size) -> Tensor:
    """The tokens that the last step was given."""
    return torch.tensor(candidate.first.tokens[-2 * size.sequences : -size.sequences]).unsqueeze(-1)


def _memory_failures(recorder: Recorder, cache: Tensor) -> Iterator[str]:
    program = recorder.programs[0]
    hlo = program.optimized_hlo()
    if len(aliased_parameters(hlo)) != 1:
        yield f"XLA aliases the parameters {aliased_parameters(hlo)}, the cache should be the only one"
    for write in whole_writes(hlo, cache.numel()):
        yield f"XLA writes the whole cache: {write}"


def _memory_table(recorder: Recorder, cache: Tensor) -> Table:
    """What XLA does with memory, as it says itself."""
    programs = {"with aliases": recorder.programs[0], "without": recorder.copying[0]}
    table = make_table(f"A step on XLA CPU; the cache has {cache.nbytes / MIB:.2f} MiB", "", *programs)
    hlo = [program.optimized_hlo() for program in programs.values()]
    table.add_row("input_output_alias entries", *(str(len(aliased_parameters(text))) for text in hlo))
    table.add_row("writes of the whole cache", *(str(len(whole_writes(text, cache.numel()))) for text in hlo))
    table.add_row("allocated, MiB", *(f"{scratch(program) / MIB:.2f}" for program in programs.values()))
    table.add_row("allocated / cache", *(f"{scratch(program) / cache.nbytes:.3f}" for program in programs.values()))
    return table


def _alias_table(recorder: Recorder) -> Table:
    """Times of one step, in turns, so that a busy machine slows both."""
    times: dict[str, list[float]] = {"with aliases": [], "without": []}
    runs = dict(zip(times, (recorder.programs[0].run, recorder.copying[0].run), strict=True))
    with progress("timing with and without aliases"):
        for _ in range(ROUNDS):
            for name, run in runs.items():
                times[name].append(_milliseconds(run, recorder.arguments[0]))
    table = make_table("The same step", "", *times)
    table.add_row("median ms", *(f"{statistics.median(values):.2f}" for values in times.values()))
    with_aliases, without = times.values()
    ratio = statistics.median(b / a for a, b in zip(with_aliases, without, strict=True))
    table.add_row("ratio", "1", f"{ratio:.2f}")
    return table


def _milliseconds(run: Callable[..., Any], arguments: Sequence[object]) -> float:
    """Of one call; the least of several."""
    run(*arguments)
    times: list[float] = []
    for _ in range(CALLS):
        start = time.perf_counter()
        run(*arguments)
        times.append(1000 * (time.perf_counter() - start))
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
