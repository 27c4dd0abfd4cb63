"""Sweeps run in other processes, some entries at a time: a few entries crash or hang while PyTorch traces them."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

SECONDS = 300
"""What an entry may take: a guard against endless loops. It ends the sweep, whose outcome is not to depend on time."""
_BATCH = 100
_MARK = '{"entry": '  # operators may print as well


def sweep(
    command: Sequence[str], names: Iterable[str], crashed: object, report: Callable[[str], object], jobs: int = 1
) -> dict[str, object]:
    """What `python -m command name ...` finds out about each entry, `jobs` processes at a time.

    The command calls `work`. An entry that ends its process by a signal has the outcome `crashed`; `report` is told how
    far it is. Raises RuntimeError if an entry does not come to an end, or if its samples cannot be made.
    """
    wanted = list(names)
    batches = [wanted[start : start + _BATCH] for start in range(0, len(wanted), _BATCH)]
    found: dict[str, object] = {}

    def run(batch: Sequence[str]) -> dict[str, object]:
        return _whole_batch(command, batch, crashed)

    with ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(run, batches):
            found.update(done)
            report(f"{len(found)} entries done, {len(wanted) - len(found)} to go")
    return {name: found[name] for name in wanted}


def _whole_batch(command: Sequence[str], batch: Sequence[str], crashed: object) -> dict[str, object]:
    found: dict[str, object] = {}
    waiting = list(batch)
    while waiting:
        done, problem = _in_process(command, waiting)
        found.update(done)
        waiting = [name for name in waiting if name not in done]
        if problem is not None:
            last = waiting.pop(0)
            if problem:
                raise RuntimeError(f"{last}: {problem}")
            found[last] = crashed
    return found


def _in_process(command: Sequence[str], batch: Sequence[str]) -> tuple[dict[str, object], str | None]:
    """The outcomes of the entries of a batch; up to one that has a problem, which is told, empty for a crash."""
    run = subprocess.run([sys.executable, "-m", *command, *batch], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith(_MARK)]
    done = {cast(str, line["entry"]): cast(object, line["outcome"]) for line in lines}
    if len(done) == len(batch):
        return done, None
    if run.returncode == -signal.SIGALRM:
        return done, f"takes more than {SECONDS} seconds"
    return done, "" if run.returncode < 0 else run.stderr.strip().rpartition("\n")[2] or "ends without an outcome"


def work(names: Sequence[str], outcome: Callable[[str], object]) -> None:
    """Print the outcomes of entries, one line of JSON each, as soon as they are known."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # fake tensors log each call that they refuse
    for name in names:
        signal.alarm(SECONDS)  # ends the process
        print(json.dumps({"entry": name, "outcome": outcome(name)}), flush=True)
    signal.alarm(0)
