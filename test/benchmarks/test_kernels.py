"""The benchmark of kernels measures every op; how long each takes is not tested."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kernels.py"


@pytest.mark.slow
def test_every_op_is_measured() -> None:
    arguments = ["--rows", "1", "3", "--hidden", "256", "--dtypes", "float16", "--repeat", "1"]
    # Wide enough for the longest name.
    environment = os.environ | {"COLUMNS": "120"}
    command = [sys.executable, str(BENCHMARK), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "float16" in line]
    names = ["rms_norm", "fused_add_rms_norm", "silu_and_mul", *["gelu_and_mul"] * 2, *["rotary_embedding"] * 2]
    for narrow in ("fp8", "int8"):
        names += [f"static_scaled_{narrow}_quant", f"dynamic_per_token_scaled_{narrow}_quant"]
        names += [f"per_token_group_{narrow}_quant"]
    names += ["reshape_and_cache", "paged_attention", "fused_moe"]
    assert [row[0] for row in rows] == names * 2
    assert all(float(cell) > 0 for row in rows for cell in row[-3:])
