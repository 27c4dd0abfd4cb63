"""`python -m vllm_ir.tools.fuzz.mutants`: plant each bug in turn, and see that the fuzzer finds it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_ir.tools.files import write_whole
from vllm_ir.tools.fuzz.campaign import Campaign
from vllm_ir.tools.fuzz.mutants.mutant import Mutant
from vllm_ir.tools.fuzz.mutants.table import MUTANTS
from vllm_ir.tools.fuzz.settings import Settings

LIMIT = 2000
"""Programs within which a bug has to be found."""


def detect(mutant: Mutant, seed: int = 0, limit: int = LIMIT, jobs: int = 1) -> tuple[int, str] | None:
    """The number of the first program that shows a bug, and how; None if none does.

    A program that fails without the bug as well shows nothing.
    """
    mutant.check()
    start = 0
    while start < limit:
        failure = _first_failure(Settings(seed, (mutant.path,), 0.0, mutant.name), start, limit, jobs)
        if failure is None:
            return None
        index, kind = failure
        if _first_failure(Settings(seed, (mutant.path,), 0.0), index, index + 1, 1) is None:
            return index, kind
        start = index + 1
    return None


def _quiet(_line: str) -> None:
    pass


def _first_failure(settings: Settings, start: int, stop: int, jobs: int) -> tuple[int, str] | None:
    campaign = Campaign(settings, start, stop, jobs=jobs, stop_at_failure=True, report=_quiet)
    failures = campaign.run().failures
    if not failures:
        return None
    first = min(failures, key=lambda failure: int(failure["index"]))
    return int(first["index"]), str(first["kind"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all mutants; 1 if one is not found."""
    parser = argparse.ArgumentParser(prog="python -m vllm_ir.tools.fuzz.mutants")
    parser.add_argument("names", nargs="*", help="some of them; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=LIMIT, help="programs for each")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write what was found there")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in MUTANTS]
    if unknown:
        print(f"mutants: error: unknown mutant {unknown[0]!r}", file=sys.stderr)
        return 2
    found: dict[str, tuple[int, str] | None] = {}
    for name in options.names or MUTANTS:
        mutant = MUTANTS[name]
        found[name] = result = detect(mutant, options.seed, options.limit, options.jobs)
        what = f"NOT FOUND in {options.limit} programs" if result is None else f"program {result[0]}: {result[1]}"
        print(f"{name} ({mutant.path}): {what}", flush=True)
        if options.json:
            write_whole(options.json, json.dumps(found, indent=1).encode())
    missed = [name for name, result in found.items() if result is None]
    print(f"{len(found) - len(missed)} of {len(found)} found" + (f"; not found: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
