"""One program: generated, run on all paths, and made smaller where it fails."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from vllm_ir.tools.fuzz.generate import generate
from vllm_ir.tools.fuzz.judge import Verdict, expected, judge
from vllm_ir.tools.fuzz.program import Program, load, render
from vllm_ir.tools.fuzz.settings import FAILED, Settings
from vllm_ir.tools.fuzz.shrink import shrink
from vllm_ir.tools.fuzz.simulate import check


@dataclass
class Outcome:
    """What came of one program."""

    index: int
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    discarded: int = 0
    seconds: float = 0.0
    cases: dict[str, str] = field(default_factory=dict[str, str])
    """The shrunk program as a file, by path."""


def run_program(settings: Settings, index: int, known: set[tuple[str, str]]) -> Outcome:
    """Generate a program, run it on all paths and shrink it where it fails in a way that is not `known`."""
    start = time.perf_counter()
    generated = generate(settings.seed, index)
    outcome = Outcome(index, discarded=generated.discarded)
    loaded = load(generated.source, f"program_{settings.seed}_{index}.py")
    try:
        seen = expected(loaded)
        outcome.verdicts = [judge(loaded, path, seen) for path in settings.paths]
    finally:
        loaded.forget()
    for verdict in outcome.verdicts if settings.shrink_seconds else ():
        if verdict.outcome == FAILED and (verdict.path, verdict.kind) not in known:
            known.add((verdict.path, verdict.kind))
            outcome.cases[verdict.path] = _smallest(settings, index, generated.program, verdict)
    outcome.seconds = time.perf_counter() - start
    return outcome


def _smallest(settings: Settings, index: int, program: Program, verdict: Verdict) -> str:
    def still_fails(candidate: Program) -> bool:
        return _judge(candidate, verdict.path) == (verdict.outcome, verdict.kind)

    smallest = shrink(program, still_fails, settings.shrink_seconds)
    title = f"{verdict.path}: {verdict.kind} (program {index} of seed {settings.seed})."
    return render(smallest, title.replace("\\", ""), paths=[verdict.path], undefined=check(smallest))


def _judge(program: Program, path: str) -> tuple[str, str]:
    loaded = load(render(program, undefined=check(program)), "shrunk.py")
    try:
        verdict = judge(loaded, path, expected(loaded))
    except Exception:  # noqa: BLE001  # eager refuses it, in whatever way
        return "", ""
    finally:
        loaded.forget()
    return verdict.outcome, verdict.kind
