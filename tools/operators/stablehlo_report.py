"""The table of `docs/stablehlo.md`: what `convert-to-stablehlo` does with each operator.

`python -m vllm_ir.tools.operators.stablehlo_report` writes it into that page, between two marks. What converts directly
is what the tables of the pass hold. What PyTorch decomposes is a matter of trying: a decomposition may lead to
operators that are refused. `--sweep` converts PyTorch's samples (some minutes) and keeps what became of them in
`docs/stablehlo_operators.json`, from which the other rows are made.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import torch

from vllm_ir.conversions.convert_to_stablehlo.decompose import decompositions
from vllm_ir.conversions.convert_to_stablehlo.table import CONVERSIONS, FAMILIES, HIGHER_ORDER, REJECTIONS
from vllm_ir.frontends.fx.schemas import target_name
from vllm_ir.tools.files import write_whole
from vllm_ir.tools.operators import models
from vllm_ir.tools.operators.database import entries
from vllm_ir.tools.operators.stablehlo_sweep import INTERNAL, SAMPLES, Attempt, sweep

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
CONVERTED, IN_PART, REJECTED = "converted", "in part", "rejected"
_NOT_FORWARD = re.compile(r"_out$|\.out$|\.grad_input$|\.output$|backward|_\.|sparse|quantized|mkldnn|cudnn|miopen")
_INNER = re.compile(r"it is defined by @\S+, which cannot be converted: ")
_KINDS = (
    (
        re.compile(r"data-dependent|depends on elements"),
        "what it does depends on elements, which tracing does not know",
    ),
    (re.compile(r"sparse", re.IGNORECASE), "it takes or gives sparse tensors"),
)
"""Reasons in PyTorch's words, and ours for the table."""


@dataclass
class Outcomes:
    """What became of PyTorch's samples: `converted`, `rejected: <reason>`, or `in part: <reason>` for some samples.

    `entries` has the entries of PyTorch's database, `operators` the operators that they consist of and that have no
    conversion of their own.
    """

    torch: str
    entries: dict[str, str]
    operators: dict[str, str]


# --- samples ---------------------------------------------------------------------------------------------------------


def outcomes(found: Mapping[str, Sequence[Attempt]]) -> Outcomes:
    """The outcomes of the attempts of entries. An entry without attempts is left out: none of its samples runs."""
    by_entry = {name: _outcome(map(_of_entry, attempts)) for name, attempts in sorted(found.items()) if attempts}
    by_operator: dict[str, list[str | None]] = {}
    direct = {*CONVERSIONS, *HIGHER_ORDER}
    for attempt in (attempt for attempts in found.values() for attempt in attempts):
        for operator in attempt.operators if attempt.reason is None else [attempt.refused]:
            if operator is not None and operator not in direct and not _NOT_FORWARD.search(operator):
                by_operator.setdefault(operator, []).append(attempt.reason)
    version = torch.__version__.partition("+")[0]
    return Outcomes(version, by_entry, {name: _outcome(by_operator[name]) for name in sorted(by_operator)})


def _of_entry(attempt: Attempt) -> str | None:
    return attempt.reason if attempt.refused is None else f"@{attempt.refused}: {attempt.reason}"


def _outcome(reasons: Iterable[str | None]) -> str:
    """The outcome for the reasons of samples, of which None says that it converts; the most frequent reason is told."""
    every = list(reasons)
    refused = Counter(reason for reason in every if reason is not None)
    if not refused:
        return CONVERTED
    most = min(refused, key=lambda reason: (-refused[reason], reason))
    return f"{IN_PART if None in every else REJECTED}: {most}"


def read(data: Path) -> Outcomes:
    """What a sweep has found."""
    stored = cast("dict[str, object]", json.loads(data.read_text(encoding="utf-8")))
    maps = [cast("dict[str, str]", stored[name]) for name in ("entries", "operators")]
    return Outcomes(str(stored["torch"]), *maps)


def write(found: Outcomes, data: Path) -> None:
    """Keep what a sweep has found."""
    write_whole(data, (json.dumps(asdict(found), indent=1) + "\n").encode())


# --- page ------------------------------------------------------------------------------------------------------------


def table(found: Outcomes) -> str:
    """The table as Markdown, below a paragraph on what the sweep found."""
    lines = [_figures(found), "", "| Operators | How |", "|---|---|"]
    for family in FAMILIES:
        name = family.__name__.rpartition(".")[2]
        lines.append(f"| {_names(family.CONVERSIONS)} | direct (`{name}.py`) |")
    lines.append(f"| {_names(HIGHER_ORDER)} | direct (`control_flow.py`) |")
    verified = [name for name, outcome in found.operators.items() if outcome == CONVERTED]
    mixed = _mixed(found)
    lines.append(f"| {_names(verified, mixed)} | by PyTorch's decomposition |")
    for kind, names in _by_kind(found.operators, IN_PART).items():
        how = f"by PyTorch's decomposition for some arguments, rejected for others: {kind}"
        lines.append(f"| {_names(names, mixed)} | {how} |")
    refused = found.operators | {name: f"{REJECTED}: {reason}" for name, reason in REJECTIONS.items()}
    for kind, names in _by_kind(refused, REJECTED).items():
        lines.append(f"| {_names(names, mixed)} | rejected: {kind} |")
    whole = {name: outcome for name, outcome in found.entries.items() if not outcome.startswith(f"{REJECTED}: @")}
    for kind, names in _by_kind(whole, REJECTED).items():
        lines.append(f"| {_listed(names)} | rejected as a whole: {kind} |")
    return "\n".join(lines)


def _mixed(found: Outcomes) -> set[str]:
    """Operators whose overloads have different outcomes: the table has to name these."""
    every = [(name, outcome.partition(":")[0]) for name, outcome in found.operators.items()]
    every += [(name, "direct") for name in CONVERSIONS] + [(name, REJECTED) for name in REJECTIONS]
    hows: dict[str, set[str]] = {}
    for name, how in every:
        hows.setdefault(name.rpartition(".")[0], set()).add(how)
    return {packet for packet, different in hows.items() if len(different) > 1}


def _figures(found: Outcomes) -> str:
    counts = Counter(outcome.partition(":")[0] for outcome in found.entries.values())
    total, reached = len(found.entries), {*found.operators, *CONVERSIONS, *REJECTIONS}
    text = (
        f"Of the {total} entries of PyTorch {found.torch}'s own database of operators (`op_db`) with samples that run "
        f"in eager mode, {counts[CONVERTED]} ({counts[CONVERTED] / total:.0%}) convert for every sample that is tried, "
        f"{counts[IN_PART]} for some and {counts[REJECTED]} for none: up to {SAMPLES} samples each, in f32 where the "
        "operator takes it, forward only. The outcome of each is in `docs/stablehlo_operators.json`, which "
        "`python -m vllm_ir.tools.operators.stablehlo_report --sweep` renews. PyTorch has decompositions of "
        f"{len(_decomposed() - reached)} further ATen operators of which no sample tells anything, most of them "
        "functions that it takes apart itself: they are in none of the rows, and may convert or not."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False)


def _decomposed() -> set[str]:
    names = (target_name(target) for target in decompositions())
    return {name for name in names if name.startswith("aten.") and not _NOT_FORWARD.search(name)}


def _by_kind(found: Mapping[str, str], how: str) -> dict[str, list[str]]:
    """Names with this outcome, by the kind of reason; the kinds with most names first."""
    kinds: dict[str, list[str]] = {}
    for name, outcome in found.items():
        if outcome.startswith(f"{how}: "):
            kinds.setdefault(_kind(outcome.removeprefix(f"{how}: ")), []).append(name)
    return dict(sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])))


def _kind(reason: str) -> str:
    """A reason without what it says of one call, and without the help behind it."""
    reason = _INNER.sub("", reason)
    ours = next((kind for pattern, kind in _KINDS if pattern.search(reason)), reason)
    return INTERNAL.rstrip(":") if reason.startswith(INTERNAL) and ours is reason else re.split(r"[;:] ", ours)[0]


def _names(names: Iterable[str], told: Container[str] | None = None) -> str:
    """Operators with their overloads, `aten.add` (Tensor, Scalar); of all, or only of those that are in `told`."""
    packets: dict[str, list[str]] = {}
    for name in sorted(names):
        packet, _, overload = name.rpartition(".")
        packets.setdefault(packet, []).append(overload)
    return ", ".join(
        f"`{packet}`"
        if overloads == ["default"] or (told is not None and packet not in told)
        else f"`{packet}` ({', '.join(overloads)})"
        for packet, overloads in packets.items()
    )


def _listed(names: Iterable[str]) -> str:
    """Functions of torch that PyTorch's entries stand for; a variant behind the name."""
    parts = (name.partition(" ") for name in sorted(names))
    return ", ".join(f"`torch.{name}`{space}{variant}" for name, space, variant in parts)


def main(page: Path, data: Path) -> None:
    """Write the table into a page, with what a sweep has found."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    body = f"{table(read(data))}\n\n## Models\n\n{models.table(models.read(data))}"
    write_whole(page, f"{before}{BEGIN}\n{body}\n{END}{rest.partition(END)[2]}".encode())


def _run(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the table of docs/stablehlo.md.")
    parser.add_argument("page", nargs="?", type=Path, default=Path("docs/stablehlo.md"))
    parser.add_argument("--sweep", action="store_true", help="first try PyTorch's samples, which takes some minutes")
    options = parser.parse_args(arguments)
    data = options.page.with_name("stablehlo_operators.json")
    if options.sweep:
        write(outcomes(sweep(entries(), lambda line: print(line, flush=True))), data)
    main(options.page, data)


if __name__ == "__main__":
    _run()
