"""The benchmark of compile times measures every stage; how long each takes is not tested."""

import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "compile_time.py"


def test_every_stage_is_measured() -> None:
    command = [sys.executable, str(BENCHMARK), "--layers", "2", "1", "--repeat", "1", "--profile", "import"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    header, _, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()][1:6]
    assert header == ["layers", "nodes", "normalize", "import", "verify", "functionalize", "lower", "export", "fakes"]
    assert [row[0] for row in rows] == ["1", "2", "ratio"]
    assert all(float(cell) > 0 for row in rows for cell in row[1:])
    assert "graph_import.py" in done.stdout
