"""CPU time of `lower` for one and for many equal `rms_norm`, and of tracing their implementation for each, in one run.

    python benchmarks/lowering.py [--nodes 128] [--repeat 5] [--provider native]

The pass traces an implementation for the first node of a kind, and inlines it for all. `after the first` is what the
others cost together: the time for all nodes less that for one (target: 60 ms for 128 nodes). Beside it, what a pass
would spend that traced every node: `make_fx` of the implementation alone, on fake tensors. The ratio is that time by
the time after the first. Each figure is the least of its repetitions.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import vllm_ir as ir

ROWS, HIDDEN, EPSILON = 4, 64, 1e-5


def seconds(work: Callable[[], object]) -> float:
    """CPU time of a call, so that other programs on the machine count little."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def lower_chain(nodes: int, provider: str) -> float:
    """Seconds of `lower` alone, for a chain of equal norms that is imported and functionalized."""

    def chain(x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(nodes):
            x = ir.ops.rms_norm(x, weight, EPSILON)
        return x

    module = ir.run_passes(ir.import_callable(chain, torch.ones(ROWS, HIDDEN), torch.ones(HIDDEN)), "functionalize")
    with ir.ops.rms_norm.set_priority([*dict.fromkeys((provider, "native"))]):
        return seconds(lambda: ir.run_passes(module, "lower", check=False))


def trace_one(provider: str) -> float:
    """Seconds of `make_fx` of the implementation."""
    impl = ir.ops.rms_norm.impls[provider].impl_fn

    def call(x: Tensor, weight: Tensor) -> object:
        return impl(x, weight, EPSILON, None)

    with FakeTensorMode(), torch.no_grad():
        fakes = torch.empty(ROWS, HIDDEN), torch.empty(HIDDEN)
        return seconds(lambda: make_fx(call, tracing_mode="real")(*fakes))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=128, help="norms in the chain, at least 2")
    parser.add_argument("--repeat", type=int, default=5, help="the fastest of so many runs counts")
    parser.add_argument("--provider", default="native", choices=ir.ops.rms_norm.supported_providers())
    options = parser.parse_args(arguments)
    if options.nodes < 2 or options.repeat < 1:
        parser.error("--nodes must be at least 2, and --repeat at least 1")
    turns = [
        (lower_chain(1, options.provider), lower_chain(options.nodes, options.provider), trace_one(options.provider))
        for _ in range(options.repeat + 1)
    ][1:]  # the first turn loads what a process loads once
    one, all_nodes, trace = (min(times) for times in zip(*turns, strict=True))
    others = options.nodes - 1
    after = all_nodes - one
    title = f"rms_norm by {options.provider!r}, CPU time"
    table = Table("", "nodes", "ms", "µs per node", title=title, box=box.SIMPLE, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = (("lower, one", 1, one), ("lower, all", options.nodes, all_nodes), ("lower, after the first", others, after))
    for name, nodes, spent in (*rows, ("make_fx for each", others, others * trace)):
        table.add_row(name, str(nodes), f"{1e3 * spent:.2f}", f"{1e6 * spent / nodes:.1f}")
    Console().print(table)
    print(f"tracing each of {others} nodes / lowering them after the first: {others * trace / after:.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
