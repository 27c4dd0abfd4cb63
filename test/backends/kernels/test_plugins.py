"""Providers of other distributions."""

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
from torch import Tensor
from vllm_ir.frontends.ops import ops

@ops.silu_and_mul.register_impl("planted")
def silu_and_mul(x: Tensor) -> Tensor:
    return ops.silu_and_mul.native(x)
"""


def install(directory: Path, source: str) -> None:
    """What `pip install` leaves of a distribution with a module and an entry point."""
    (directory / "planted_kernels.py").write_text(source)
    metadata = directory / "planted-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[vllm_ir.kernels]\nmine = planted_kernels\n")


def run(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(directory)!r})\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_an_entry_point_adds_a_provider(tmp_path: Path):
    install(tmp_path, PLUGIN)
    done = run(
        tmp_path,
        "import vllm_ir.backends.kernels\n"
        "from vllm_ir.frontends.ops import ops\n"
        "assert list(ops.silu_and_mul.impls) == ['native', 'cpu', 'planted'], ops.silu_and_mul.impls\n"
        "assert ops.silu_and_mul.get_priority() == []\n",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("source", "fact"), [("1 / 0", "ZeroDivisionError"), ("import no_such_module", "ModuleNotFound")]
)
def test_a_broken_one_is_named(tmp_path: Path, source: str, fact: str):
    install(tmp_path, source)
    done = run(tmp_path, "import vllm_ir.backends.kernels")
    last = done.stderr.strip().splitlines()[-1]
    assert "kernels of distribution 'planted' cannot be loaded: entry point 'mine'" in last
    assert fact in last
