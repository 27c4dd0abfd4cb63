"""Reports of compiled graphs, and progress."""

import logging

import pytest
import torch
from torch import Tensor, fx

from vllm_ir.frontends.ops import ops
from vllm_ir.tools import reports
from vllm_ir.tools.compile import vllm_ir_eager
from vllm_ir.tools.reports import clear_compile_reports, compile_reports, record_copies, recording


@torch.library.custom_op("compile_reports::fill_two", mutates_args=("first", "second"))
def fill_two(x: Tensor, first: Tensor, second: Tensor) -> None:
    first.copy_(x)
    second.copy_(-x)


def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(y)
    return x.clone(), y * 2


@pytest.fixture(autouse=True)
def no_reports():
    clear_compile_reports()
    with torch.no_grad():
        yield


def test_a_report_tells_what_was_compiled():
    torch.compile(program, backend=vllm_ir_eager)(torch.ones(2), torch.ones(2))
    (report,) = compile_reports()
    assert (report.backend, report.kind, report.mutated) == ("vllm_ir_eager", "inference", ["l_x_"])
    assert list(report.pass_seconds) == ["normalize", "import", "functionalize", "lower", "eliminate-clones", "export"]
    assert min(report.pass_seconds.values()) > 0
    assert list(report.op_counts) == ["fx", "import", "functionalize", "lower", "eliminate-clones", "export"]
    assert report.nodes == report.op_counts["fx"] > 0


@pytest.fixture
def picky_provider():
    @ops.rms_norm.register_impl("compile_reports", supports_args=lambda x, weight, epsilon, variance_size: x.dim() == 3)
    def _(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
        return ops.rms_norm.native(x, weight, epsilon, variance_size)

    yield
    ops.rms_norm.remove_impl("compile_reports")


@pytest.mark.usefixtures("picky_provider")
def test_a_report_names_the_implementations_chosen_and_passed_over():
    def norms(x: Tensor, y: Tensor) -> Tensor:
        return ops.rms_norm(x, None, 1e-5).sum() + ops.rms_norm(y, None, 1e-5).sum()

    options = {"ir_op_priority": {"rms_norm": ["compile_reports"]}}
    x, y = torch.randn(2, 3, 4), torch.randn(3, 4)
    result = torch.compile(norms, backend="vllm_ir_eager", options=options)(x, y)
    assert torch.equal(result, norms(x, y))
    (report,) = compile_reports()
    assert sorted(report.selected_impls["rms_norm"].values()) == ["compile_reports", "native"]
    (rejected,) = report.rejected_impls["rms_norm"].items()
    assert report.selected_impls["rms_norm"][rejected[0]] == "native"
    assert rejected[1] == [("compile_reports", "supports_args refused the arguments")]


def test_reports_are_in_order_and_can_be_cleared():
    for size in (1, 2):
        torch._dynamo.reset()
        torch.compile(program, backend=vllm_ir_eager)(torch.ones(size), torch.ones(size))
    first, second = compile_reports()
    assert second.graph_id == first.graph_id + 1
    clear_compile_reports()
    assert compile_reports() == []


def test_graphs_that_fail_to_compile_leave_no_report():
    with pytest.raises(ValueError, match="wrong"), recording("vllm_ir", "inference"):
        raise ValueError("wrong")
    assert compile_reports() == []


def test_copies_are_clones_and_the_written_arguments_of_functional_calls():
    graph = fx.Graph()
    x = graph.placeholder("x")
    clone = graph.call_function(torch.ops.aten.clone.default, (x,))
    clone.meta["stack_trace"] = '  File "model.py", line 7, in forward'
    graph.call_function(
        torch.ops.higher_order.auto_functionalized,
        (torch.ops.compile_reports.fill_two.default,),
        {"x": x, "first": clone, "second": clone},
    )
    with recording("vllm_ir", "inference") as report:
        record_copies(report, graph, {})
    ops = [(op, location) for op, location, _ in report.copies]
    assert ops == [("aten.clone.default", "model.py:7"), *[("compile_reports.fill_two.default", "unknown")] * 2]
    assert [reason.count("'first'") for _, _, reason in report.copies] == [0, 1, 0]


def writes_both(x: Tensor, both: Tensor) -> Tensor:
    fill_two(x, both[0], both[1])
    return both.sum()


@pytest.mark.parametrize(
    ("passes", "copies"), [("functionalize,lower", 2), ("functionalize,lower,eliminate-clones", 0)]
)
def test_functional_forms_for_inductor_count_as_copies(passes: str, copies: int):
    both = torch.zeros(2, 3)
    torch.compile(writes_both, backend="vllm_ir", options={"passes": passes})(torch.ones(3), both)
    assert both.tolist() == [[1.0] * 3, [-1.0] * 3]
    (report,) = compile_reports()
    assert sum("fill_two" in op for op, _, _ in report.copies) == copies
    assert report.clones_removed == 2 - copies


@pytest.mark.parametrize("shown", ["1", "0"])
def test_progress_is_one_line_per_phase(shown: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv("VLLM_IR_PROGRESS", shown)
    caplog.set_level(logging.INFO, logger="vllm_ir")
    with recording("vllm_ir", "inference") as report, reports.phase(report, "import"):
        pass
    expected = [f"vllm_ir: graph {report.graph_id}: import 0.00 s"] if shown == "1" else []
    assert caplog.messages == expected
