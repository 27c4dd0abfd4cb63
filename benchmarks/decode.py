"""Step time, peak memory and generated kernels of eager mode, plain Inductor and `backend="vllm_ir"`, in one run.

    python benchmarks/decode.py [--only paged-decode mlp] [--rounds 40] [--layers 4] [--hidden 512] [--provider cpu]

One thread; turns alternate. A time is CPU time, the median of all turns; a ratio of times is the median of the ratios
of all rounds. Peak memory is what a call allocates, its results included. Ratios are to the best of
Inductor's variants, in each figure by itself; kernels are compared with those for the same program, because loops that
write to separate caches merge where loops that write to one cannot. The lines below the table say what is above its
limit. The exit status is 1 if a result differs from eager mode's, whatever the ratios.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))  # the decoders, and what measures memory

import torch
from decode_programs import CASES, CONTEXT, Case, Shape
from interleaved import Variant, build, take_turns
from paged_model import BLOCK
from rich import box
from rich.console import Console
from rich.table import Table
from side_by_side import progress

OURS = "vllm_ir"
OPS = ("rms_norm", "fused_add_rms_norm", "silu_and_mul", "rotary_embedding")
SLOWEST = 1.02  # of the best of Inductor's times
# Results are below 10, and the sums behind them have hundreds of float32 terms: a few units in the last place, should
# another order of summation add up against us everywhere.
TOLERANCE = 1e-5
MIB = 2**20


@dataclass(frozen=True)
class Measured:
    """The variants of one program."""

    name: str
    eager: Variant
    inductor: list[Variant]
    """The first is of the very same program."""
    ours: Variant

    @property
    def variants(self) -> list[Variant]:
        """All of them, ours last."""
        return [self.eager, *self.inductor, self.ours]

    @property
    def time_ratio(self) -> float:
        """Our time, in that of the fastest of Inductor's variants."""
        return self.ours.time_ratio(min(self.inductor, key=lambda variant: variant.seconds))

    @property
    def peak_ratio(self) -> float:
        """Our peak memory, in the least of Inductor's."""
        return self.ours.memory.peak / min(variant.memory.peak for variant in self.inductor)

    def above_limits(self) -> Iterator[str]:
        """What should be less."""
        if self.time_ratio > SLOWEST:
            yield f"{self.name}: {self.time_ratio:.3f} of the time of the best Inductor, the limit is {SLOWEST}"
        if self.peak_ratio > 1:
            yield f"{self.name}: {self.peak_ratio:.3f} of the peak memory of the best Inductor"
        theirs = self.inductor[0].kernels
        if self.ours.kernels > theirs:
            yield f"{self.name}: {self.ours.kernels} kernels, Inductor needs {theirs} for the same program"

    def failures(self) -> Iterator[str]:
        """Results that are not eager mode's."""
        for variant in (*self.inductor, self.ours):
            if not (difference := variant.off_by(self.eager)) <= TOLERANCE:
                yield f"{self.name}: {variant.name} off by {difference:.2g}, the limit is {TOLERANCE:.2g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    options = _options(arguments)
    torch.set_num_threads(1)
    shape = Shape(options.layers, options.hidden, options.tokens, options.blocks, options.sequences)
    with torch.no_grad():
        measured = [measure(name, CASES[name](shape), options.rounds, options.provider) for name in options.only]
    console = Console(width=112)
    console.print(_table(measured))
    above = [line for program in measured for line in program.above_limits()]
    failures = [line for program in measured for line in program.failures()]
    for line in above or ["nothing"]:
        console.print(f"above its limit: {line}")
    for line in failures:
        console.print(f"[red]FAILED[/red] {line}")
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES), help="programs to measure (all)")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each variant (40)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the decoders (4)")
    parser.add_argument("--hidden", type=int, default=512, help="width, a multiple of 16 (512)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of the MLP and of attention (128)")
    parser.add_argument("--blocks", type=int, default=256, help="blocks of the paged cache (256)")
    parser.add_argument("--sequences", type=int, default=4, help="sequences of the paged decoder (4)")
    parser.add_argument("--provider", help="ask this provider of kernels first, for example cpu")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.hidden < 16 or options.hidden % 16:
        parser.error("--rounds must be positive, --hidden a multiple of 16")
    needed = options.sequences * CONTEXT // BLOCK
    if options.blocks < needed:
        parser.error(f"--blocks must be at least {needed}, which the sequences need")
    return options


def measure(name: str, case: Case, rounds: int, provider: str | None = None) -> Measured:
    """Compile every variant of a program, compare results, and time them in turns."""
    print(f"{name}:", file=sys.stderr, flush=True)
    eager = build("eager", case.program)
    inductor = [build(variant, program, "inductor") for variant, program in case.baselines.items()]
    priorities = {} if provider is None else {"ir_op_priority": {op: [provider] for op in OPS}}
    measured = Measured(name, eager, inductor, build(OURS, case.program, OURS, priorities))
    with progress("timing"):
        take_turns(measured.variants, rounds)
    return measured


def _table(measured: Sequence[Measured]) -> Table:
    table = Table("program", "variant", "ms", "peak MiB", "kernels", "time ratio", "peak ratio", box=box.SIMPLE)
    table.columns[1].no_wrap = True
    for column in table.columns[2:]:
        column.justify = "right"
    for program in measured:
        ratios = {OURS: (f"{program.time_ratio:.3f}", f"{program.peak_ratio:.3f}")}
        for variant in program.variants:
            figures = (f"{1000 * variant.seconds:.3f}", f"{variant.memory.peak / MIB:.3f}", str(variant.kernels))
            first = program.name if variant is program.eager else ""
            table.add_row(first, variant.name, *figures, *ratios.get(variant.name, ("", "")))
    return table


if __name__ == "__main__":
    sys.exit(main())
