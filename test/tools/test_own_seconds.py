"""Which part of a compilation's time is this compiler's own."""

import pytest
import torch

from vllm_ir.tools.compile import vllm_ir_eager
from vllm_ir.tools.reports import CompileReport, clear_compile_reports, compile_reports


def test_all_but_tracing_and_inductor() -> None:
    seconds = {"normalize": 1.0, "import": 0.5, "functionalize": 0.25, "lower": 2.0, "export": 4.0, "backend": 8.0}
    assert CompileReport(0, "vllm_ir", "inference", pass_seconds=seconds).own_seconds == 6.75
    assert CompileReport(0, "vllm_ir", "inference").own_seconds == 0


def test_of_a_compiled_graph() -> None:
    clear_compile_reports()
    torch.compile(lambda x: x + 1, backend=vllm_ir_eager)(torch.ones(2))
    (report,) = compile_reports()
    rest = sum(report.pass_seconds.values()) - report.pass_seconds["normalize"]
    assert report.own_seconds == pytest.approx(rest)
    assert report.own_seconds > 0
