"""Variants of one program: compiled and compared with eager mode, then measured in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from side_by_side import largest_difference, progress
from step_memory import StepMemory, step_memory
from torch import Tensor
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor import metrics
from torch.utils import _pytree as pytree

WARM_UP, CALLS = 2, 20  # calls of a turn: not timed, and timed at most
TURN, BUDGET = 0.05, 6.0  # seconds of timed calls, about: in a turn, and of a variant in all
LEAST_TURNS = 3

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """A function to measure, with what it works on."""

    function: Callable[..., object]
    make_arguments: Callable[[], Arguments]
    """New arguments, the same ones each time."""
    written: Callable[[Arguments], Sequence[Tensor]] = lambda _: ()
    """What a call writes; other forms of a program give it in the same order."""
    reset: Callable[[Arguments], None] = lambda _: None
    """Makes another call do the same again; not timed."""


@dataclass
class Variant:
    """One way to run a program, and what it costs."""

    name: str
    program: Program
    function: Callable[..., object]
    arguments: Arguments
    results: list[Tensor]
    """Copies of what the first call returned, and of what it wrote."""
    kernels: int
    """Kernels that Inductor generated."""
    memory: StepMemory
    medians: list[float] = field(default_factory=lambda: [])
    """CPU seconds of a call, the median of each turn."""
    spent: float = 0.0
    """CPU seconds of all timed calls."""

    @property
    def seconds(self) -> float:
        """CPU seconds of a call: the median of all turns."""
        return statistics.median(self.medians)

    def time_ratio(self, other: Variant) -> float:
        """Our time in that of another variant: the median of the rounds' ratios.

        What slows the machine down for longer than a round, slows both of them.
        """
        return statistics.median(a / b for a, b in zip(self.medians, other.medians, strict=False))

    def off_by(self, other: Variant) -> float:
        """Largest difference of the results of two variants; NaN where one is NaN."""
        differences = [largest_difference(a, b) for a, b in zip(self.results, other.results, strict=True)]
        return torch.tensor(differences, dtype=torch.float64).max().item()

    def take_turn(self) -> None:
        """Time some calls; a variant that has used up its budget sits out."""
        if len(self.medians) >= LEAST_TURNS and self.spent > BUDGET:
            return
        for _ in range(WARM_UP):
            self._timed_call()
        times: list[float] = []
        while not times or (len(times) < CALLS and sum(times) < TURN):
            times.append(self._timed_call())
        self.medians.append(statistics.median(times))
        self.spent += sum(times)

    def _timed_call(self) -> float:
        # CPU time is the time of a step on an idle machine, since there is only one thread.
        self.program.reset(self.arguments)
        start = time.process_time()
        self.function(*self.arguments)
        return time.process_time() - start


def build(name: str, program: Program, backend: str | None = None, options: Mapping[str, Any] | None = None) -> Variant:
    """Compile a program, or leave it as it is without `backend`; run it a few times and take what is not time."""
    function = program.function
    if backend is not None:
        function = torch.compile(function, backend=backend, fullgraph=True, dynamic=False, options=dict(options or {}))
    arguments = program.make_arguments()
    metrics.reset()
    # A graph that comes from a cache has no kernels to count. Machine code may come from one.
    no_graphs = inductor_config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False)
    with progress(f"{name}: first call"), no_graphs[0], no_graphs[1]:
        result = function(*arguments)
    kernels = metrics.generated_kernel_count
    leaves = pytree.tree_leaves((result, list(program.written(arguments))))
    results = [leaf.clone() for leaf in leaves if isinstance(leaf, Tensor)]
    for _ in range(WARM_UP):
        program.reset(arguments)
        function(*arguments)
    program.reset(arguments)
    memory = step_memory(lambda: function(*arguments))
    return Variant(name, program, function, arguments, results, kernels, memory)


def take_turns(variants: Sequence[Variant], rounds: int) -> None:
    """Time variants of one program alternately, forwards and backwards."""
    for index in range(rounds):
        for variant in variants if index % 2 else reversed(variants):
            variant.take_turn()
