"""CPU time per node of every stage of a compilation, for Llama decoding steps of growing depth.

    python benchmarks/compile_time.py [--layers 8 32 80] [--repeat 3] [--profile import]

Every stage should be linear: the last line divides the time per node of the deepest model by that of the shallowest.
Targets: at most 30 µs per node for import, which comes behind normalize, and 60 µs for functionalize.

`verify` is part of export, and so is `fakes`: PyTorch's work to run the exported operators on fake tensors.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from llama_graph import decode_graph
from rich import box
from rich.console import Console
from rich.table import Table
from torch import fx

import vllm_ir as ir
from vllm_ir.backends.fx.export import export_split
from vllm_ir.frontends.fx.importer import import_normalized
from vllm_ir.frontends.fx.normalize import normalize

STAGES = ("normalize", "import", "verify", "functionalize", "lower", "export", "fakes")


@dataclass
class Measurement:
    """Seconds of CPU time of each stage, the least of all repetitions."""

    nodes: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {})
    profiled: str | None = None
    """A stage to profile."""
    profiler: cProfile.Profile = field(default_factory=cProfile.Profile)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block. CPU time, so that other programs on the machine count little."""
        if name == self.profiled:
            self.profiler.enable()
        start = time.process_time()
        yield
        seconds = time.process_time() - start
        self.profiler.disable()
        self.seconds[name] = min(seconds, self.seconds.get(name, seconds))


def measure(graph: fx.GraphModule, measurement: Measurement) -> None:
    """Run all stages once."""
    with measurement.stage("normalize"):
        normalized = normalize(graph)
    gc.collect()
    with measurement.stage("import"):
        module = import_normalized(normalized)
    measurement.nodes = len(normalized.graph_module.graph.nodes)
    with measurement.stage("verify"):
        module.verify()
    for name in ("functionalize", "lower"):
        with measurement.stage(name):
            ir.run_passes(module, name, check=False)
    with measurement.stage("export"):
        core = export_split(module, normalized.inputs, normalized.fake_mode).core
    with normalized.fake_mode, measurement.stage("fakes"):
        fx.Interpreter(core).run(*normalized.inputs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 32, 80])
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many runs counts (3)")
    parser.add_argument("--profile", choices=STAGES, help="also profile this stage of the deepest model")
    options = parser.parse_args(arguments)
    layers = sorted(options.layers)
    graphs = [decode_graph(count) for count in layers]
    measurements = [Measurement() for _ in layers]
    for count, graph, measurement in zip(layers, graphs, measurements, strict=True):
        for _ in range(options.repeat):
            measure(graph, measurement)
        print(f"{count} layers measured", file=sys.stderr, flush=True)
    Console(width=96).print(_table(layers, measurements))
    if options.profile is not None:
        profile = Measurement(profiled=options.profile)
        measure(graphs[-1], profile)
        pstats.Stats(profile.profiler).sort_stats("tottime").print_stats(30)
    return 0


def _table(layers: Sequence[int], measurements: Sequence[Measurement]) -> Table:
    table = Table("layers", "nodes", *STAGES, title="CPU time, µs per node", box=box.SIMPLE, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for count, measurement in zip(layers, measurements, strict=True):
        costs = [f"{_cost(measurement, stage):.1f}" for stage in STAGES]
        table.add_row(str(count), str(measurement.nodes), *costs)
    first, last = measurements[0], measurements[-1]
    ratios = [f"{_cost(last, stage) / _cost(first, stage):.2f}" for stage in STAGES]
    table.add_row("ratio", f"{last.nodes / first.nodes:.1f}", *ratios)
    return table


def _cost(measurement: Measurement, stage: str) -> float:
    """Microseconds per node."""
    return 1e6 * measurement.seconds[stage] / measurement.nodes


if __name__ == "__main__":
    sys.exit(main())
