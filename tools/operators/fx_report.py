"""The page `docs/operators.md`: what becomes of PyTorch's operators in the IR, and which convert to StableHLO.

`python -m vllm_ir.tools.operators.fx_report` writes it, between two marks, from `docs/operators.json` and
`docs/stablehlo_operators.json`. `--sweep` first runs PyTorch's samples through the IR (half an hour) and keeps what
became of them in the first of these files; it fails if that is not what `known.py` lists.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from vllm_ir.tools.files import write_whole
from vllm_ir.tools.operators import stablehlo_report
from vllm_ir.tools.operators.database import entries
from vllm_ir.tools.operators.fx_sweep import (
    MOST,
    REFUSED,
    ROUNDED,
    VARIANTS,
    WRONG,
    Tallies,
    Tally,
    sweep,
    tallies_of,
)
from vllm_ir.tools.operators.known import KNOWN, problems

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass
class Outcomes:
    """What a sweep has found: tallies by entry of PyTorch's database and variant of the call."""

    torch: str
    entries: dict[str, Tallies]


def read(data: Path) -> Outcomes:
    """What a sweep has found."""
    stored = cast("dict[str, object]", json.loads(data.read_text(encoding="utf-8")))
    kept = cast("dict[str, object]", stored["entries"])
    return Outcomes(str(stored["torch"]), {name: tallies_of(tallies) for name, tallies in kept.items()})


def write(found: Outcomes, data: Path) -> None:
    """Keep what a sweep has found, an entry a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(_stored(tallies))}" for name, tallies in sorted(found.entries.items())]
    body = ",\n".join(f"  {line}" for line in lines)
    write_whole(data, f'{{\n "torch": {json.dumps(found.torch)},\n "entries": {{\n{body}\n }}\n}}\n'.encode())


def _stored(tallies: Tallies) -> object:
    return {variant: {key: value for key, value in vars(tally).items() if value} for variant, tally in tallies.items()}


# --- page ------------------------------------------------------------------------------------------------------------


def table(found: Outcomes, stablehlo: stablehlo_report.Outcomes) -> str:
    """What stands between the marks, as Markdown."""
    parts = [_figures(found, stablehlo), _variants(found), _known(found), _entries(found, stablehlo)]
    return "\n\n".join(parts)


def _figures(found: Outcomes, stablehlo: stablehlo_report.Outcomes) -> str:
    tallies = [tally for variants in found.entries.values() for tally in variants.values()]
    total = _sum(tallies)
    whole = sum(all(tally.right == tally.samples for tally in variants.values()) for variants in found.entries.values())
    counts = Counter(outcome.partition(":")[0] for outcome in stablehlo.entries.values())
    converted = counts[stablehlo_report.CONVERTED]
    text = (
        f"{len(found.entries)} entries of PyTorch {found.torch}'s database of operators have samples that run in eager "
        f"mode, {total.samples} in all. {total.right} samples ({total.right / total.samples:.2%}) come out right bit "
        f"for bit, {total.rounded} ({total.rounded / total.samples:.2%}) up to rounding; {_share(total, REFUSED)} are "
        f"refused with a message, {_share(total, WRONG)} come out otherwise than eager mode. All samples of {whole} "
        f"entries are right bit for bit. To StableHLO, {converted} of {len(stablehlo.entries)} entries "
        f"({converted / len(stablehlo.entries):.0%}) convert for every sample that is tried, and "
        f"{counts[stablehlo_report.IN_PART]} for some."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False)


def _sum(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for tally in tallies:
        total.right += tally.right
        total.rounded += tally.rounded
        for outcome, count in tally.others.items():
            total.others[outcome] = total.others.get(outcome, 0) + count
    return total


def _of_kind(tally: Tally, kind: str) -> int:
    return sum(count for outcome, count in tally.others.items() if outcome.startswith(f"{kind}:"))


def _share(tally: Tally, kind: str) -> str:
    count = _of_kind(tally, kind)
    return f"{count} ({count / tally.samples:.2%})"


def _variants(found: Outcomes) -> str:
    lines = [
        "| Called as | Entries | Samples | Right | Up to rounding | Refused | Wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for variant in VARIANTS:
        tallies = [variants[variant] for variants in found.entries.values() if variant in variants]
        one = _sum(tallies)
        figures = (len(tallies), one.samples, one.right, one.rounded, _of_kind(one, REFUSED), _of_kind(one, WRONG))
        lines.append(f"| {variant} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def _known(found: Outcomes) -> str:
    lines = ["## Known exceptions", "", "| Why | Samples | Where |", "|---|---|---|"]
    for known in KNOWN:
        places = known.places(found.entries)
        lines.append(f"| {known.reason} | {sum(places.values())} | {', '.join(f'`{place}`' for place in places)} |")
    return "\n".join(lines)


def _entries(found: Outcomes, stablehlo: stablehlo_report.Outcomes) -> str:
    lines = ["## All entries", "", "| Entry | Samples | Right | Otherwise | StableHLO |", "|---|---|---|---|---|"]
    for name, variants in found.entries.items():
        total = _sum(variants.values())
        rest = {ROUNDED: total.rounded} if total.rounded else {}
        rest |= total.others
        otherwise = "; ".join(f"{count} {outcome}" for outcome, count in rest.items()).replace("|", "\\|")
        how = stablehlo.entries.get(name, "not tried").partition(":")[0]
        lines.append(f"| `{name}` | {total.samples} | {total.right} | {otherwise} | {how} |")
    return "\n".join(lines)


def main(page: Path) -> None:
    """Write the tables into a page, from the files beside it."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    found = read(page.with_name("operators.json"))
    stablehlo = stablehlo_report.read(page.with_name("stablehlo_operators.json"))
    body = table(found, stablehlo)
    write_whole(page, f"{before}{BEGIN}\n{body}\n{END}{rest.partition(END)[2]}".encode())


def _run(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the tables of docs/operators.md.")
    parser.add_argument("page", nargs="?", type=Path, default=Path("docs/operators.md"))
    parser.add_argument("--sweep", action="store_true", help="first run PyTorch's samples, which takes half an hour")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run at a time")
    parser.add_argument("--most", type=int, default=MOST, help="how many samples of a kind are tried at most")
    parser.add_argument("--only", nargs="+", metavar="ENTRY", help="run these anew, and keep what is known of others")
    options = parser.parse_args(arguments)
    data = options.page.with_name("operators.json")
    if options.sweep or options.only:
        names = options.only or list(entries())
        found = sweep(names, lambda line: print(line, flush=True), options.jobs, options.most)
        known = dict(read(data).entries) if options.only else {}
        run = {name: tallies for name, tallies in (known | found).items() if tallies}
        write(Outcomes(torch.__version__.partition("+")[0], run), data)
    main(options.page)
    found_problems = problems(read(data).entries)
    print("\n".join(found_problems), file=sys.stderr)
    return bool(found_problems)


if __name__ == "__main__":
    sys.exit(_run())
