"""CPU time per node of every stage of a compilation, for Llama decoding steps of growing depth.

    python benchmarks/compile_time.py [--layers 8 32 80] [--repeat 3] [--profile import]
    python benchmarks/compile_time.py --first-call [--layers 8 32] [--hidden 64]

Every stage should be linear: the last line divides the time per node of the deepest model by that of the shallowest.
Targets: at most 30 µs per node for import, which comes behind normalize, and 60 µs for functionalize. Below the table:
normalize against `make_fx` alone on the same graphs (target: 1.3), and lower on a chain of equal ops, which it traces
once (target: 60 ms).

`verify` is part of export, and so is `fakes`: PyTorch's work to run the exported operators on fake tensors.

With `--first-call`, a real decoding step (transformers, `backend="vllm_ir"`) is compiled instead; wall time of its
first call by phase, and the share of what is neither Dynamo nor `make_fx` nor Inductor (target: 3 % at 32 layers).
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

import torch
from llama_graph import decode_graph
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from xdsl.context import Context

import vllm_ir as ir
from vllm_ir.backends.fx.export import export_split
from vllm_ir.conversions.lower import LowerPass
from vllm_ir.frontends.fx.importer import import_normalized
from vllm_ir.frontends.fx.normalize import normalize

STAGES = ("normalize", "import", "verify", "functionalize", "lower", "export", "fakes")
MAKE_FX = "make_fx"
CHAIN = 128


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
    _trace_alone(graph, measurement)
    gc.collect()
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


def _trace_alone(graph: fx.GraphModule, measurement: Measurement) -> None:
    """What `make_fx` takes for the same graph."""
    with FakeTensorMode(), torch.no_grad():
        metas = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
        fakes = [torch.empty_strided(meta.size(), meta.stride(), dtype=meta.dtype) for meta in metas]
        gc.collect()
        with measurement.stage(MAKE_FX):
            make_fx(fx.Interpreter(graph).run, tracing_mode="real")(*fakes)


def lower_chain(measurement: Measurement) -> None:
    """Lower a chain of equal norms."""

    def chain(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(CHAIN):
            x = ir.ops.rms_norm(x, weight, 1e-5)
        return x

    module = ir.import_callable(chain, torch.ones(4, 64), torch.ones(64))
    gc.collect()
    with measurement.stage("lower"):
        LowerPass().apply(Context(), module)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", help="8 32 80; for first calls 8 32")
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many runs counts (3)")
    parser.add_argument("--profile", choices=STAGES, help="also profile this stage of the deepest model")
    parser.add_argument("--first-call", action="store_true", help="compile a real model instead, and time that call")
    parser.add_argument("--hidden", type=int, default=64, help="its width, a multiple of 16 (64)")
    options = parser.parse_args(arguments)
    if options.first_call:
        _time_first_calls(sorted(options.layers or [8, 32]), options.hidden)
        return 0
    _measure_stages(sorted(options.layers or [8, 32, 80]), options)
    return 0


def _time_first_calls(layers: Sequence[int], hidden: int) -> None:
    from first_call import first_call, first_call_table  # needs transformers

    calls = []
    for count in layers:
        calls.append(first_call(count, hidden))
        print(f"{count} layers measured", file=sys.stderr, flush=True)
    Console(width=96).print(first_call_table(calls))


def _measure_stages(layers: Sequence[int], options: argparse.Namespace) -> None:
    graphs = [decode_graph(count) for count in layers]
    measurements = [Measurement() for _ in layers]
    for count, graph, measurement in zip(layers, graphs, measurements, strict=True):
        for _ in range(options.repeat):
            measure(graph, measurement)
        print(f"{count} layers measured", file=sys.stderr, flush=True)
    chain = Measurement()
    for _ in range(options.repeat):
        lower_chain(chain)
    Console(width=96).print(_table(layers, measurements))
    ratios = [f"{one.seconds['normalize'] / one.seconds[MAKE_FX]:.2f}" for one in measurements]
    alone = [f"{_cost(one, MAKE_FX):.1f}" for one in measurements]
    print(f"normalize against make_fx alone: {', '.join(ratios)} (make_fx: {', '.join(alone)} µs per node)")
    print(f"lower of {CHAIN} equal rms_norm: {1000 * chain.seconds['lower']:.1f} ms")
    if options.profile is not None:
        profile = Measurement(profiled=options.profile)
        measure(graphs[-1], profile)
        pstats.Stats(profile.profiler).sort_stats("tottime").print_stats(30)


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
