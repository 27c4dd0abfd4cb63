"""Every ATen overload that writes: called in eager mode and through the IR, with arguments from PyTorch's own samples.

None may be silently wrong. What is refused is refused with one line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

KNOWN = {
    "aten.adaptive_avg_pool3d_backward.grad_input": "eager mode writes behind a `grad_input` with gaps",
    "aten._ctc_loss.out": "eager mode leaves parts of its result uninitialised",
    "aten._ctc_loss.Tensor_out": "eager mode leaves parts of its result uninitialised",
    "aten.from_file.out": "eager mode maps a file that does not exist",
    "aten.rrelu_with_noise.default": "eager mode writes between the elements of `noise` if it has gaps",
    "aten.random_.from": "FX cannot write it as Python code",
    "aten.random.from_out": "FX cannot write it as Python code",
}
"""Overloads where eager mode is not the judge, and why."""

# One word each: their samples are those of the operators whose name starts with it.
SLICES = (
    "add",
    "bernoulli",
    "clamp",
    "copy",
    "cumsum",
    "fill",
    "index",
    "masked",
    "normal",
    "scatter",
    "sub",
    "t_",
    "zero",
)
EXAMPLES = 3


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Fake tensors log each call that they refuse."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def outcomes(
    overload: torch._ops.OpOverload, recorded: object, samples: ModuleType, sweep: ModuleType, harness: object
):
    """What became of the first calls that eager mode accepts, with and without gaps in what is written."""
    found = []
    for attempt, maker in enumerate(sweep.makers(overload, recorded, samples)):
        if attempt == 40 or len(found) >= 2 * EXAMPLES:
            break
        for gaps in (False, True):
            outcome = sweep.classify(sweep.Example(overload, maker, gaps), harness)
            if outcome is None:
                break
            if outcome.kind != sweep.NOT_COMPARABLE:
                found.append(outcome)
    return found


def judge(overloads: list, recorded: object, samples: ModuleType, sweep: ModuleType, harness: object) -> dict[str, int]:
    """Number of overloads by what became of their worst call; fails for those that are wrong or crash."""
    counts: dict[str, int] = {}
    failures: list[str] = []
    order = [sweep.WRONG, sweep.CRASHED, sweep.REFUSED, sweep.AS_FUNCTIONAL, sweep.ROUNDED, sweep.RIGHT]
    for overload in overloads:
        found = outcomes(overload, recorded, samples, sweep, harness)
        kinds = {outcome.kind for outcome in found}
        worst = next((kind for kind in order if kind in kinds), "no call found")
        counts[worst] = counts.get(worst, 0) + 1
        for outcome in found:
            if outcome.kind in (sweep.WRONG, sweep.CRASHED) and str(overload) not in KNOWN:
                failures.append(f"{overload}: {outcome.kind}: {outcome.detail[:500]}")
            if outcome.kind == sweep.REFUSED:
                assert "\n" not in outcome.detail, outcome.detail
    assert not failures, "\n".join(failures)
    return counts


@pytest.mark.parametrize("start", SLICES)
@pytest.mark.filterwarnings("ignore")
def test_some(start: str, samples: ModuleType, sweep: ModuleType, harness: ModuleType) -> None:
    overloads = [op for op in samples.mutable_overloads() if op._schema.name.removeprefix("aten::").startswith(start)]
    names = {op._schema.name.removeprefix("aten::").rstrip("_") for op in overloads}
    counts = judge(overloads, samples.record(sorted(names)), samples, sweep, harness)
    assert counts.get(sweep.RIGHT, 0) >= len(overloads) / 3, counts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all(samples: ModuleType, sweep: ModuleType, harness: ModuleType, record_property: object) -> None:
    overloads = samples.mutable_overloads()
    counts = judge(overloads, samples.record(), samples, sweep, harness)
    print(f"{len(overloads)} overloads: {counts}")
    assert counts[sweep.RIGHT] > 950, counts
