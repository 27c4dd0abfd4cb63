"""CPU time per node of the export to StableHLO, for Llama decoding steps of growing depth.

    python benchmarks/export_stablehlo.py [--layers 8 32 80] [--repeat 3] [--profile convert]

A node is one of the FX graph behind `normalize`, cache writes in place. `pure` is alias-outputs and functionalize,
`convert` is convert-to-stablehlo, `translate` makes jaxlib's module and has jaxlib verify it. `export` is the sum of
the last two; target: at most 300 µs per node at 32 layers, and linear: the last line divides the time per node of the
deepest model by that of the shallowest. `aliased` counts the caches that an output aliases, of those that are written.
"""

from __future__ import annotations

import argparse
import gc
import pstats
import sys
from collections.abc import Sequence

from compile_time import Measurement
from llama_graph import decode_graph
from rich import box
from rich.console import Console
from rich.table import Table
from torch import fx

import vllm_ir as ir
from vllm_ir.backends.stablehlo.program import StableHLOProgram
from vllm_ir.backends.stablehlo.signature import signature_of
from vllm_ir.frontends.fx.importer import import_normalized
from vllm_ir.frontends.fx.normalize import normalize
from vllm_ir.tools.stablehlo import CONVERT, PURE, main_function

STAGES = ("import", "pure", "convert", "translate")
CACHES_OF_A_LAYER = 2


def measure(graph: fx.GraphModule, measurement: Measurement) -> StableHLOProgram:
    """Run all stages once."""
    normalized = normalize(graph)
    measurement.nodes = len(normalized.graph_module.graph.nodes)
    gc.collect()
    with measurement.stage("import"):
        module = import_normalized(normalized)
    gc.collect()
    with measurement.stage("pure"):
        ir.run_passes(module, PURE, check=False)
    main = main_function(module)
    if main is None:
        raise RuntimeError("the import left no function")
    signature = signature_of(main)
    gc.collect()
    with measurement.stage("convert"):
        ir.run_passes(module, CONVERT, check=False)
    gc.collect()
    with measurement.stage("translate"):
        return StableHLOProgram(module, signature)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[8, 32, 80], help="8 32 80")
    parser.add_argument("--repeat", type=int, default=3, help="the fastest of so many runs counts (3)")
    parser.add_argument("--profile", choices=STAGES, help="also profile this stage of the deepest model")
    options = parser.parse_args(arguments)
    layers = sorted(options.layers)
    measure(decode_graph(1), Measurement())  # starts jaxlib, which a process does once
    rows: list[tuple[int, int, Measurement]] = []
    for count in layers:
        graph, measurement = decode_graph(count), Measurement()
        programs = [measure(graph, measurement) for _ in range(options.repeat)]
        rows.append((count, len(programs[-1].io_map), measurement))
        print(f"{count} layers measured", file=sys.stderr, flush=True)
    Console(width=96).print(_table(rows))
    if options.profile is not None:
        profile = Measurement(profiled=options.profile)
        measure(decode_graph(layers[-1]), profile)
        pstats.Stats(profile.profiler).sort_stats("tottime").print_stats(30)
    return 0 if all(aliased == CACHES_OF_A_LAYER * count for count, aliased, _ in rows) else 1


def _table(rows: Sequence[tuple[int, int, Measurement]]) -> Table:
    table = Table("layers", "nodes", *STAGES, "export", "aliased", title="CPU time, µs per node", box=box.SIMPLE)
    for column in table.columns:
        column.justify = "right"
    costs = [_costs(measurement) for _, _, measurement in rows]
    for (count, aliased, measurement), cells in zip(rows, costs, strict=True):
        figures = [f"{cell:.1f}" for cell in cells]
        table.add_row(str(count), str(measurement.nodes), *figures, f"{aliased} of {CACHES_OF_A_LAYER * count}")
    ratios = [f"{last / first:.2f}" for first, last in zip(costs[0], costs[-1], strict=True)]
    table.add_row("ratio", f"{rows[-1][2].nodes / rows[0][2].nodes:.1f}", *ratios, "")
    return table


def _costs(measurement: Measurement) -> list[float]:
    """Microseconds per node of each stage, and of the export."""
    costs = [1e6 * measurement.seconds[stage] / measurement.nodes for stage in STAGES]
    return [*costs, costs[-2] + costs[-1]]


if __name__ == "__main__":
    sys.exit(main())
