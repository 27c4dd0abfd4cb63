"""The table of operators in the documentation is that of the pass, and of what PyTorch's samples do in it."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("xdsl_jax", reason="needs the extra stablehlo")
pytest.importorskip("expecttest", reason="PyTorch's samples import it")

from vllm_ir.tools.operators import stablehlo_report as operators
from vllm_ir.tools.operators.database import entries
from vllm_ir.tools.operators.stablehlo_sweep import CRASH, INTERNAL, Attempt, sweep

PAGE = Path(__file__).parents[2] / "docs" / "stablehlo.md"
DATA = PAGE.with_name("stablehlo_operators.json")

# Of each outcome and kind of reason some; by decomposition, direct, in part, and refused at each of the stages.
SLICE = (
    "addcdiv",
    "bernoulli",
    "cdist",
    "equal",
    "frac",
    "fft.fft",
    "histc",
    "lerp",
    "lgamma",
    "linalg.svd",
    "masked_select",
    "nn.functional.group_norm",
    "nn.functional.pixel_shuffle",
    "sum",
)


def test_the_page_is_current(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    operators.main(copy, DATA)
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), (
        "run python -m vllm_ir.tools.operators.stablehlo_report"
    )


def test_outcomes_of_some_entries_are_those_in_the_file() -> None:
    stored = operators.read(DATA)
    found = operators.outcomes(sweep(SLICE, print))
    assert found.torch == stored.torch, "run python -m vllm_ir.tools.operators.stablehlo_report --sweep"
    assert found.entries == {name: stored.entries[name] for name in SLICE}
    for name, outcome in found.operators.items():
        whole = stored.operators[name]
        assert whole == outcome or whole.startswith(operators.IN_PART), name


def test_the_file_has_the_entries_that_pytorch_has() -> None:
    stored = operators.read(DATA)
    unknown = stored.entries.keys() - entries().keys()
    assert not unknown
    assert len(stored.entries) > 0.95 * len(entries())


def test_what_converts_directly_is_not_said_to_be_decomposed() -> None:
    from vllm_ir.conversions.convert_to_stablehlo.table import CONVERSIONS

    assert not operators.read(DATA).operators.keys() & CONVERSIONS.keys()


def test_outcome_is_told_for_all_samples() -> None:
    refused = Attempt(["aten.x.default"], "aten.x.default", "no form; write y")
    fine = Attempt(["aten.x.default", "aten.z.default"])
    found = operators.outcomes({"a": [fine], "b": [fine, refused], "c": [refused], "d": []})
    assert found.entries == {
        "a": "converted",
        "b": "in part: @aten.x.default: no form; write y",
        "c": "rejected: @aten.x.default: no form; write y",
    }
    assert found.operators == {"aten.x.default": "in part: no form; write y", "aten.z.default": "converted"}


def test_reasons_are_told_by_kind() -> None:
    attempt = Attempt(
        ["aten.x.default"],
        "aten.x.default",
        "it is defined by @prims.y.default, which cannot be converted: it has 3 legs; cut them",
    )
    bug = Attempt(reason=f"{INTERNAL} TypeError: 3 given")
    rows = operators.table(operators.outcomes({"a": [attempt], "b (c)": [bug]})).splitlines()
    assert "| `aten.x` | rejected: it has 3 legs |" in rows
    assert "| `torch.b` (c) | rejected as a whole: internal error |" in rows


def _worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str) -> None:
    """A process in the place of Python that gets past the first entry that it is given, and then ends like this."""
    script = tmp_path / "worker"
    script.write_text(
        f"""#!/bin/sh
test "$3" = second && {{ {end}; }}
echo "an operator prints"
echo '{{"entry": "'$3'", "outcome": []}}'
test -z "$4" || {{ {end}; }}
"""
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_an_entry_that_crashes_does_not_end_the_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _worker(monkeypatch, tmp_path, "kill -SEGV $$")
    lines: list[str] = []
    assert sweep(["first", "second", "third"], lines.append) == {
        "first": [],
        "second": [Attempt(reason=CRASH)],
        "third": [],
    }
    assert lines == ["3 entries done, 0 to go"]


@pytest.mark.parametrize(
    ("end", "reason"),
    [("echo KeyError: 7 >&2; exit 1", "second: KeyError: 7"), ("kill -ALRM $$", "second: takes more than")],
)
def test_a_sweep_that_cannot_go_on_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str, reason: str
) -> None:
    _worker(monkeypatch, tmp_path, end)
    with pytest.raises(RuntimeError, match=reason):
        sweep(["first", "second"], print)
