"""The benchmark of the export to StableHLO measures every stage; how long each takes is not tested."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jaxlib")

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "export_stablehlo.py"


def test_every_stage_is_measured_and_every_cache_aliased() -> None:
    command = [sys.executable, str(BENCHMARK), "--layers", "2", "1", "--repeat", "1", "--profile", "convert"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    header, _, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()][1:6]
    assert header == ["layers", "nodes", "import", "pure", "convert", "translate", "export", "aliased"]
    assert [row[0] for row in rows] == ["1", "2", "ratio"]
    assert [row[-3:] for row in rows[:2]] == [["2", "of", "2"], ["4", "of", "4"]]
    assert all(float(cell) > 0 for row in rows for cell in row[1:7])
    assert "Ordered by: internal time" in done.stdout
