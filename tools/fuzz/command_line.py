"""The command `python -m vllm_ir.tools.fuzz`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vllm_ir.tools.fuzz.campaign import Campaign, CampaignError, Totals
from vllm_ir.tools.fuzz.paths import PATHS
from vllm_ir.tools.fuzz.settings import AGREES, FAILED, REFUSED, Settings

_CASES = Path("test/fuzz/cases")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 1 if a program failed, 2 if the command is not right, otherwise 0."""
    options = _parser().parse_args(arguments)
    paths = tuple(options.paths.split(","))
    unknown = [path for path in paths if path not in PATHS]
    if unknown:
        print(f"fuzz: error: unknown path {unknown[0]!r}; paths are {', '.join(PATHS)}", file=sys.stderr)
        return 2
    if options.show is not None:
        from vllm_ir.tools.fuzz.generate import generate

        print(generate(options.seed, options.show).source, end="")
        return 0
    campaign = Campaign(
        Settings(options.seed, paths, options.shrink_seconds, options.mutant),
        options.start,
        options.start + options.n,
        jobs=options.jobs,
        minutes=options.minutes,
        state=options.resume,
        cases=options.cases,
        report=lambda line: print(line, flush=True),
    )
    try:
        totals = campaign.run()
    except CampaignError as error:
        print(f"fuzz: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fuzz: interrupted" + (f"; go on with --resume {options.resume}" if options.resume else ""))
        return 130
    _summary(totals)
    return 1 if totals.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vllm_ir.tools.fuzz",
        description="Run random programs that write memory, and compare each path through the compiler with eager.",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-n", type=int, default=1000, metavar="COUNT", help="how many programs")
    parser.add_argument("--start", type=int, default=0, metavar="INDEX", help="the first program")
    parser.add_argument("--paths", default="vllm_ir_eager", help=f"some of {','.join(PATHS)}")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--minutes", type=float, help="stop after that long")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep the state there, and go on from it")
    default = _CASES if _CASES.is_dir() else Path("fuzz-cases")
    parser.add_argument("--cases", type=Path, default=default, metavar="FOLDER", help="where failures are stored")
    parser.add_argument("--shrink-seconds", type=float, default=60.0, help="how long each kind of failure is shrunk")
    parser.add_argument("--mutant", default="", metavar="NAME", help="plant this bug first")
    parser.add_argument("--show", type=int, metavar="INDEX", help="print a program and do nothing else")
    return parser


def _summary(totals: Totals) -> None:
    for path, counts in totals.outcomes.items():
        print(
            f"{path}: {counts.get(AGREES, 0)} agree, {counts.get(REFUSED, 0)} refused, {counts.get(FAILED, 0)} failed"
        )
        for reason, count in sorted(totals.refusals.get(path, {}).items(), key=lambda entry: -entry[1]):
            print(f"  refused {count}: {reason}")
    print(f"{totals.discarded} statements were discarded while generating: eager refuses them or does not define them")
    kinds: dict[tuple[str, str], list[int]] = {}
    for failure in totals.failures:
        kinds.setdefault((failure["path"], failure["kind"]), []).append(failure["index"])
    for (path, kind), indices in kinds.items():
        print(f"FAILED {len(indices)} on {path}: {kind} (programs {', '.join(map(str, indices[:8]))})")
