"""Many programs on many workers: counting, storing what fails, and going on where a campaign was stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any, cast

from vllm_ir.tools.files import write_whole
from vllm_ir.tools.fuzz.cases import store
from vllm_ir.tools.fuzz.settings import AGREES, FAILED, REFUSED, Settings

CHUNK = 25
"""Programs per request."""
_PROGRAMS_PER_WORKER = 1500
"""After that many a worker is replaced by a new one, which has the memory of a new process."""
_SILENCE = 600.0
"""Seconds without an answer after which a program counts as hanging."""


@dataclass
class Totals:
    """What a campaign has seen so far; kept in a file between runs."""

    programs: int = 0
    discarded: int = 0
    """Statements that eager refused, or that have no defined result."""
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """How many programs agree, are refused and fail, by path."""
    refusals: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """How many are refused, by path and reason."""
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # entries are of JSON
    """`index`, `path`, `kind`, `text` and `case` of each failure."""
    done: list[int] = field(default_factory=list[int])
    """The first programs of the chunks that are through."""
    seconds: float = 0.0

    def add(self, answer: Mapping[str, Any], folder: Path | None, seed: int) -> list[str]:  # as for `failures`
        """Count what came of a program; returns a line for each failure."""
        self.programs += 1
        self.discarded += answer["discarded"]
        lines: list[str] = []
        for verdict in answer["verdicts"]:
            path, outcome, kind = verdict["path"], verdict["outcome"], verdict["kind"]
            counts = self.outcomes.setdefault(path, {})
            counts[outcome] = counts.get(outcome, 0) + 1
            if outcome == REFUSED:
                reasons = self.refusals.setdefault(path, {})
                reasons[kind] = reasons.get(kind, 0) + 1
            elif outcome == FAILED:
                lines.append(self._fail(answer, verdict, folder, seed))
        return lines

    def _fail(self, answer: Mapping[str, Any], verdict: Mapping[str, Any], folder: Path | None, seed: int) -> str:
        path, kind, index = verdict["path"], verdict["kind"], answer["index"]
        source = answer["cases"].get(path)
        file = ""
        if source and folder is not None:
            file = str(store(folder, f"{path} {kind[:40]} {seed} {index}", source))
        self.failures.append({"index": index, "path": path, "kind": kind, "text": verdict["text"], "case": file})
        return f"program {index} on {path}: {kind}{f' ({file})' if file else ''}"

    def crashed(self, index: int, paths: tuple[str, ...], what: str) -> str:
        """Count a program that took its worker with it."""
        self.programs += 1
        for path in paths:
            counts = self.outcomes.setdefault(path, {})
            counts[FAILED] = counts.get(FAILED, 0) + 1
        self.failures.append({"index": index, "path": ",".join(paths), "kind": what, "text": "", "case": ""})
        return f"program {index}: {what}"


class CampaignError(ValueError):
    """A state file that does not fit the campaign, or workers that do not start."""


@dataclass
class Campaign:
    """Programs `start` to `stop` of a seed."""

    settings: Settings
    start: int
    stop: int
    jobs: int = 1
    minutes: float | None = None
    state: Path | None = None
    cases: Path | None = None
    stop_at_failure: bool = False
    report: Callable[[str], None] = print
    totals: Totals = field(default_factory=Totals)
    error: str = ""

    def run(self) -> Totals:
        """Run what is not done yet; returns the totals, also of what was done before.

        Raises:
            CampaignError: the state file is of another seed or other paths, or no worker starts.
        """
        self._read_state()
        done = set(self.totals.done)
        self._chunks: Queue[tuple[int, int]] = Queue()
        for first in range(self.start, self.stop, CHUNK):
            if first not in done:
                self._chunks.put((first, min(first + CHUNK, self.stop)))
        self._began, self._before = time.monotonic(), self.totals.seconds
        self._lock, self._end = threading.Lock(), threading.Event()
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        last = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            if self.minutes is not None and time.monotonic() - self._began > 60 * self.minutes:
                self._end.set()
            if time.monotonic() - last > 10:
                last = time.monotonic()
                self.report(self.progress())
        self._write_state()
        if self.error:
            raise CampaignError(self.error)
        self.report(self.progress())
        return self.totals

    def progress(self) -> str:
        """One line: how far, how fast, how many failures."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        done = self.totals.programs
        refused = sum(counts.get(REFUSED, 0) for counts in self.totals.outcomes.values())
        agree = sum(counts.get(AGREES, 0) for counts in self.totals.outcomes.values())
        rate = (done - self._counted_before) / seconds
        return (
            f"{done}/{self.stop - self.start} programs, {rate:.1f}/s, {agree} agree, {refused} refused, "
            f"{len(self.totals.failures)} failed"
        )

    # Workers

    def _serve(self) -> None:
        while not self._end.is_set():
            worker = _Worker(self.settings)
            try:
                if not self._use(worker):
                    return
            finally:
                worker.close()

    def _use(self, worker: _Worker) -> bool:
        """Have a worker run chunks; whether another worker is needed."""
        programs = 0
        while programs < _PROGRAMS_PER_WORKER and not self._end.is_set():
            try:
                first, stop = self._chunks.get_nowait()
            except Empty:
                return False
            running: int | None = None
            for answer in worker.answers(first, stop):
                if "begin" in answer:
                    running = cast(int, answer["begin"])
                elif "done" in answer:
                    with self._lock:
                        self.totals.done.append(first)
                        self._write_state()
                elif "died" in answer and running is None:
                    self.error = f"the worker does not start: {answer['died']}"
                    self._end.set()
                    return False
                elif "died" in answer and running is not None:
                    self._count_crash(running, str(answer["died"]))
                    if running + 1 < stop:
                        self._chunks.put((running + 1, stop))
                    return True
                else:
                    programs += 1
                    self._count(answer)
                if self._end.is_set():
                    return False
        return True

    def _count(self, answer: Mapping[str, Any]) -> None:
        with self._lock:
            for line in self.totals.add(answer, self.cases, self.settings.seed):
                self.report(line)
                if self.stop_at_failure:
                    self._end.set()

    def _count_crash(self, index: int, what: str) -> None:
        with self._lock:
            self.report(self.totals.crashed(index, self.settings.paths, what))
            if self.stop_at_failure:
                self._end.set()

    # State

    def _read_state(self) -> None:
        self._counted_before = 0
        if self.state is None or not self.state.exists():
            return
        saved = json.loads(self.state.read_text())
        mine = [self.settings.seed, list(self.settings.paths), self.start]
        if saved["campaign"] != mine:
            raise CampaignError(f"{self.state} is of seed, paths and start {saved['campaign']}, not {mine}")
        self.totals = Totals(**saved["totals"])
        self._counted_before = self.totals.programs

    def _write_state(self) -> None:
        if self.state is None:
            return
        self.totals.seconds = self._before + time.monotonic() - self._began
        content = {
            "campaign": [self.settings.seed, list(self.settings.paths), self.start],
            "totals": asdict(self.totals),
        }
        write_whole(self.state, json.dumps(content).encode())


class _Worker:
    """A worker process, and its answers."""

    def __init__(self, settings: Settings) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (open as long as the process is)
        environment = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", **os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "vllm_ir.tools.fuzz.worker", json.dumps(asdict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._lines: Queue[str | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def answers(self, first: int, stop: int) -> Iterator[Mapping[str, Any]]:
        """What the worker says about some programs; `died` if it did."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([first, stop]) + "\n")
            self._process.stdin.flush()
        except OSError:
            yield {"died": self._last_words()}
            return
        while True:
            try:
                line = self._lines.get(timeout=_SILENCE)
            except Empty:
                yield {"died": f"hangs for more than {_SILENCE:.0f} s"}
                return
            if line is None:
                yield {"died": self._last_words()}
                return
            answer = json.loads(line)
            yield answer
            if "done" in answer:
                return

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read()[-4000:].splitlines() if line.strip()]
        return f"the process ended with code {code}: {lines[-1] if lines else ''}"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._errors.close()
