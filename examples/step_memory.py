"""How much memory a call allocates, as torch's profiler sees it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch.profiler import ProfilerActivity, profile

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler reports on itself, on stderr


@dataclass(frozen=True)
class StepMemory:
    """Allocations of one call, the results included."""

    peak: int
    """The most bytes that were allocated by the call and not yet freed."""
    allocations: tuple[int, ...]
    """Bytes of each allocation, in order."""

    def count(self, least: int) -> int:
        """How many allocations have at least that many bytes."""
        return sum(size >= least for size in self.allocations)


def step_memory(call: Callable[[], object]) -> StepMemory:
    """Run a call once under the profiler. Its first runs belong before this one: compiling allocates too."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    assert recorded.profiler is not None
    assert recorded.profiler.kineto_results is not None
    events: list[Any] = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return StepMemory(max(accumulate(changes, initial=0)), tuple(size for size in changes if size > 0))
