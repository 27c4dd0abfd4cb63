"""The decoder on XLA runs to its end, and fails if the cache is copied or moves."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jaxlib")

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--layers", "2", "--hidden", "64", "--steps", "3", "--blocks", "64")


def row(output: str, name: str) -> list[str]:
    """Cells of the table row that starts with `name`, without the name."""
    found = re.findall(rf"^│ {re.escape(name)} +│(.*)│$", output, re.MULTILINE)
    assert len(found) == 1, f"{len(found)} rows {name!r} in\n{output}"
    return [cell.strip() for cell in found[0].split("│")]


def test_small_model_agrees_with_eager_and_is_updated_in_place() -> None:
    command = [sys.executable, str(EXAMPLES / "xla_decoder.py"), *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All results agree; the cache is updated in place." in done.stdout
    assert row(done.stdout, "tokens equal") == ["yes", "yes"]
    assert row(done.stdout, "input_output_alias entries") == ["1", "0"]
    whole, copied = map(int, row(done.stdout, "writes of the whole cache"))
    assert whole == 0 < copied
    with_aliases, without = map(float, row(done.stdout, "allocated / cache"))
    assert with_aliases < 0.1
    assert without > 1


HLO = """HloModule main, is_scheduled=true, input_output_alias={ {1}: (2, {}, may-alias), {0}: (0, {}, must-alias) }, \
entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}

%updated (p: f32[32], q: f32[8]) -> f32[4,8] {
  %p = f32[32]{0} parameter(0)
  %shaped = f32[4,8]{1,0} bitcast(%p)
  %q = f32[1,8]{1,0} parameter(1)
  %zero = s32[] constant(0)
  ROOT %put = f32[4,8]{1,0} dynamic-update-slice(%shaped, %q, %zero, %zero)
}

%doubled (p.1: f32[4,8]) -> f32[4,8] {
  %p.1 = f32[4,8]{1,0} parameter(0)
  ROOT %twice = f32[4,8]{1,0} add(%p.1, %p.1)
}

ENTRY %main (a: f32[32], b: f32[1,8]) -> (f32[4,8], f32[4,8], f32[8]) {
  %a = f32[32]{0} parameter(0)
  %b = f32[1,8]{1,0} parameter(1)
  %whole = f32[4,8]{1,0} fusion(%a, %b), kind=kLoop, calls=%updated
  %other = f32[4,8]{1,0} fusion(%whole), kind=kLoop, calls=%doubled
  %moved = f32[4,8]{1,0} copy(%other)
  %small = f32[8]{0} bitcast(%b)
  ROOT %out = (f32[4,8]{1,0}, f32[4,8]{1,0}, f32[8]{0}) tuple(%moved, %other, %small)
}
"""


def test_writes_of_whole_buffers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from xla_memory import aliased_parameters, whole_writes

    assert aliased_parameters(HLO) == {1: 2, 0: 0}
    assert aliased_parameters(HLO.replace("input_output_alias", "x")) == {}
    assert whole_writes(HLO, 32) == ["other: fusion", "moved: copy"]
    assert whole_writes(HLO, 8) == []
    unknown = HLO.replace("bitcast(%p)", "negate(%p)")
    assert whole_writes(unknown, 32) == ["whole: fusion", "other: fusion", "moved: copy"]


@pytest.mark.parametrize("arguments", [["--steps", "2"], ["--layers", "0"], ["--hidden", "100"]])
def test_wrong_sizes_are_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_IR_PROGRESS", "0")  # which the import would set for all tests after this one
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import xla_decoder

    with pytest.raises(SystemExit, match="2"):
        xla_decoder.main(arguments)
    assert "must be" in capsys.readouterr().err
