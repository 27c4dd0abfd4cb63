"""What compilations leave behind: log messages, structured traces, files in PyTorch's debug folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vllm_ir as ir

PROGRAM = """
import sys, torch, vllm_ir as ir
from torch import Tensor

@ir.ops.rms_norm.register_impl("picky", supports_args=lambda x, weight, epsilon, variance_size=None: x.dim() == 3)
def picky(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    return ir.ops.rms_norm.native(x, weight, epsilon, variance_size)

def norms(x: Tensor, kept: Tensor) -> Tensor:
    kept.add_(1)
    return ir.ops.rms_norm(x, None, 1e-5) + kept

with torch.no_grad():
    options = {"ir_op_priority": {"rms_norm": ["picky"]}}
    torch.compile(norms, backend="vllm_ir_eager", options=options)(torch.ones(2, 4), torch.ones(2, 4))
"""


def run(**environment: str) -> str:
    """What the program writes to stderr."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_", "VLLM_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**known, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or "VLLM_LOGGING_LEVEL" in done.stderr, done.stderr
    return done.stderr


CHOICE = "vllm_ir.rms_norm rms_norm_default: 'native'; 'picky' passed over: supports_args refused the arguments"


def test_level_trace_and_debug_folder(tmp_path: Path) -> None:
    trace, debug = tmp_path / "trace", tmp_path / "debug"
    said = run(
        VLLM_LOGGING_LEVEL="debug",
        TORCH_TRACE=str(trace),
        TORCH_COMPILE_DEBUG="1",
        TORCH_COMPILE_DEBUG_DIR=str(debug),
    )
    assert CHOICE in said
    assert "graph 0 (vllm_ir_eager, inference): normalize " in said
    assert "operations: " in said

    (log,) = trace.iterdir()
    lines = [line.partition("]")[2] for line in log.read_text().splitlines()]
    names = {json.loads(line)["artifact"]["name"] for line in lines if line.strip().startswith('{"artifact"')}
    kept = {"graph_0_imported.mlir", "graph_0_lowered.mlir", "graph_0_report.json"}
    assert {f"vllm_ir_{name}" for name in kept} <= names

    files = {file.name: file for file in debug.rglob("vllm_ir/*")}
    assert files.keys() == kept
    report = json.loads(files["graph_0_report.json"].read_text())
    assert report["selected_impls"] == {"rms_norm": {"rms_norm_default": "native"}}
    assert report["rejected_impls"] == {
        "rms_norm": {"rms_norm_default": [["picky", "supports_args refused the arguments"]]}
    }
    assert "vllm_ir.rms_norm" in files["graph_0_imported.mlir"].read_text()
    assert "torch.call @aten.rsqrt" in files["graph_0_lowered.mlir"].read_text()


def test_torchs_own_switch_for_logs() -> None:
    assert CHOICE in run(TORCH_LOGS="+vllm_ir")
    assert "rms_norm" not in run()


def test_a_level_that_there_is_not() -> None:
    assert "VLLM_LOGGING_LEVEL: expected one of CRITICAL, DEBUG, " in run(VLLM_LOGGING_LEVEL="loud")


def test_reports_tell_what_came_from_inductors_cache() -> None:
    def program(x: Tensor) -> Tensor:
        return x.sin() * 3 + 1

    with torch.no_grad():
        torch.compile(program, backend="vllm_ir")(torch.ones(5))
        torch.compiler.reset()
        torch.compile(program, backend="vllm_ir")(torch.ones(5))
    assert ir.compile_reports()[-1].from_cache


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    from vllm_ir.tools import debug_artifacts

    monkeypatch.setattr(debug_artifacts, "debug_directory", lambda: str(blocked))
    with torch.no_grad():
        torch.compile(lambda x: x + 1, backend="vllm_ir_eager")(torch.ones(2))
    assert "is not written: " in caplog.text
