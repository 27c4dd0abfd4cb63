"""`python -m vllm_ir.tools.fuzz_text`: mutate texts of the tests for a time, and keep what should not have happened."""

from __future__ import annotations

import argparse
import hashlib
import logging
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from vllm_ir.tools.fuzz_text.judge import Finding, TooSlowError, judge
from vllm_ir.tools.fuzz_text.minimise import minimise
from vllm_ir.tools.fuzz_text.mutations import Mutator

SECONDS = 10
"""For one input."""
_GRACE = 60
"""Seconds behind which an input that does not let itself be interrupted is given up, with the process."""
_FOUND = 3
"""Exit status of a worker that has findings."""
_MEMORY = 6 << 30
"""Bytes of address space behind those that the process has at the start."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer; returns 1 if there are findings."""
    options = _parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.input is not None:
        return _replay(options.input, options.seed)
    if options.worker:
        return _work(options.corpus, options.out, options.seed, time.time() + 60 * options.minutes, options.count)
    return _supervise(options.corpus, options.out, options.seed, options.minutes, options.count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vllm_ir.tools.fuzz_text", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long to run")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="number of inputs, if the time is enough")
    parser.add_argument("--seed", type=int, default=0, help="inputs are the same for the same seed")
    parser.add_argument("--corpus", type=Path, default=Path("test"), help="folder of .mlir files to start from")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz_text"), help="folder for findings")
    parser.add_argument("--input", type=Path, help="run this file alone, in all the ways that the fuzzer would")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


# The process that watches


def _supervise(corpus: Path, out: Path, seed: int, minutes: float, count: int) -> int:
    """Run workers until the time is over. One that dies, or does not answer, has its input kept as a finding."""
    end = time.time() + 60 * minutes
    current = out / "current.mlir"
    crashes = 0
    while True:
        current.unlink(missing_ok=True)
        left = max((end - time.time()) / 60, 0)
        options = ["--seed", str(seed + 1_000_003 * crashes), "--minutes", str(left), "--count", str(count)]
        options += ["--corpus", str(corpus), "--out", str(out)]
        worker = subprocess.Popen([sys.executable, "-m", "vllm_ir.tools.fuzz_text", "--worker", *options])
        status = _watched(worker, current)
        if status in (0, _FOUND):
            break
        crashes += 1
        name = f"crash-{crashes}-{status}.mlir"
        print(f"FINDING {out / name}: the process ended with status {status}", flush=True)
        if current.exists():
            current.rename(out / name)
        if time.time() > end:
            break
    return 1 if crashes or status else 0


def _watched(worker: subprocess.Popen[bytes], current: Path) -> int:
    """The worker's exit status; it is killed if it stays at one input."""
    while True:
        try:
            return worker.wait(timeout=5)
        except subprocess.TimeoutExpired:
            if current.exists() and time.time() - current.stat().st_mtime > _GRACE:
                worker.kill()
                return worker.wait()


# The process that works


def _work(folder: Path, out: Path, seed: int, end: float, count: int) -> int:
    from vllm_ir.tools.fuzz_text.corpus import corpus

    _quiet()
    random = Random(seed)
    mutator = Mutator(corpus(folder), random)
    _limit_memory()
    current = out / "current.mlir"
    start, done, found = time.time(), 0, dict[str, int]()
    shown = start
    while time.time() < end and done < count:
        text, choice = mutator.next(), random.getrandbits(32)
        current.write_text(text, encoding="utf-8", errors="surrogatepass")
        done += 1
        if (finding := _timed(text, choice)) is not None:
            found[finding.key] = found.get(finding.key, 0) + 1
            if found[finding.key] == 1:
                _keep(out, text, choice, finding, current)
        if time.time() - shown > 30:
            shown = time.time()
            print(f"{done} inputs in {shown - start:.0f} s, {len(found)} findings", flush=True)
    current.unlink(missing_ok=True)
    print(f"seed {seed}: {done} inputs in {time.time() - start:.0f} s, {len(found)} findings", flush=True)
    return _FOUND if found else 0


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _limit_memory() -> None:
    """Let an input that asks for a lot of memory fail with `MemoryError`, instead of the machine."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _timed(text: str, choice: int) -> Finding | None:
    with _watchdog():
        return judge(text, Random(choice))


@contextmanager
def _watchdog() -> Generator[None]:
    def over(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _keep(out: Path, text: str, choice: int, finding: Finding, current: Path) -> None:
    """Write a finding down, made smaller."""

    def shows(shorter: str) -> bool:
        current.touch()  # the process is alive
        other = _timed(shorter, choice)
        return other is not None and other.key == finding.key

    slow = finding.what.startswith(TooSlowError.__name__)
    small = minimise(text, shows, 6 if slow else 150)
    name = hashlib.sha256(finding.key.encode()).hexdigest()[:12]
    (out / f"{name}.mlir").write_text(small, encoding="utf-8", errors="surrogatepass")
    note = f"choice {choice}\nstage {finding.stage}\n{finding.what}\n\n{finding.details}\n"
    (out / f"{name}.txt").write_text(note, encoding="utf-8", errors="replace")
    print(f"FINDING {out / name}.mlir: {finding.stage}: {finding.what}", flush=True)


def _replay(path: Path, seed: int) -> int:
    _quiet()
    text = path.read_text(encoding="utf-8", errors="surrogatepass")
    note = path.with_suffix(".txt")
    first = note.read_text(encoding="utf-8").split()[1] if note.exists() else str(seed)
    for choice in (int(first), *range(40)):
        if (finding := _timed(text, choice)) is not None:
            print(f"{finding.stage}: {finding.what}\n{finding.details}")
            return 1
    print("no finding")
    return 0


if __name__ == "__main__":
    sys.exit(main())
