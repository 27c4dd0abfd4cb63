"""The benchmark of kernels measures every op; how long each takes is not tested."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kernels.py"


@pytest.mark.slow
def test_every_op_is_measured() -> None:
    arguments = ["--rows", "1", "3", "--hidden", "256", "--dtypes", "float16", "--repeat", "1"]
    done = subprocess.run([sys.executable, str(BENCHMARK), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "float16" in line]
    names = ["rms_norm", "fused_add_rms_norm", "silu_and_mul", "rotary_embedding", "rotary_embedding"]
    names += ["reshape_and_cache", "paged_attention", "fused_moe"]
    assert [row[0] for row in rows] == names * 2
    assert all(float(cell) > 0 for row in rows for cell in row[-3:])
