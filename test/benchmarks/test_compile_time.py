"""The benchmark of compile times measures every stage; how long each takes is not tested."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "compile_time.py"


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(BENCHMARK), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_stage_is_measured() -> None:
    output = run("--layers", "2", "1", "--repeat", "1", "--profile", "import")
    header, _, *rows = [line.split() for line in output.splitlines() if line.strip()][1:6]
    assert header == ["layers", "nodes", "normalize", "import", "verify", "functionalize", "lower", "export", "fakes"]
    assert [row[0] for row in rows] == ["1", "2", "ratio"]
    assert all(float(cell) > 0 for row in rows for cell in row[1:])
    alone = re.search(
        r"^normalize against make_fx alone: (\S+), (\S+) \(make_fx: (\S+), (\S+) µs per node\)$", output, re.M
    )
    assert alone is not None
    assert all(float(number) > 0 for number in alone.groups())
    chain = re.search(r"^lower of 128 equal rms_norm: (\S+) ms$", output, re.M)
    assert chain is not None
    assert float(chain[1]) > 0
    assert "graph_import.py" in output


@pytest.mark.slow
def test_every_phase_of_a_first_call_is_measured() -> None:
    pytest.importorskip("transformers")
    output = run("--first-call", "--layers", "2", "1", "--hidden", "32")
    rows = dict(re.findall(r"^ (\S.*?)  +(\S.*)$", output, re.M))
    assert rows.pop("layers").split() == ["1", "2"]
    phases = {"normalize", "import", "functionalize", "lower", "export", "backend"}
    assert phases | {"nodes", "whole call", "Dynamo and the step", "own, % of the whole call"} <= rows.keys()
    assert all(float(cell) >= 0 for row in rows.values() for cell in row.split())
    assert all(0 < float(share) < 100 for share in rows["own, % of the whole call"].split())
