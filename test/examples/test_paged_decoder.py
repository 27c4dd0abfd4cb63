"""The paged decoder runs to its end, shows what it measures, and fails on wrong results."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--layers", "2", "--hidden", "64", "--steps", "4", "--blocks", "8", "--no-inductor")
EAGER = ("--backend", "vllm_ir_eager")


def row(output: str, name: str) -> list[str]:
    """Cells of the table row that starts with `name`, without the name."""
    found = re.findall(rf"^│ {re.escape(name)} +│(.*)│$", output, re.MULTILINE)
    assert len(found) == 1, f"{len(found)} rows {name!r} in\n{output}"
    return [cell.strip() for cell in found[0].split("│")]


def test_small_model_agrees_with_eager() -> None:
    command = [sys.executable, str(EXAMPLES / "paged_decoder.py"), *SMALL, *EAGER, "--provider", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "All results agree." in done.stdout
    assert row(done.stdout, "mutated arguments") == ["1", "1"]
    assert row(done.stdout, "rms_norm") == ["cpu", "1", "1", ""]
    assert row(done.stdout, "fused_add_rms_norm") == ["cpu", "4", "4", ""]
    assert row(done.stdout, "rotary_embedding") == ["native", "2", "2", ""]
    assert row(done.stdout, "silu_and_mul") == ["native", "2", "2", ""]
    for name in ("clones inserted", "clones removed", "copies in the report"):
        assert all(int(count) >= 0 for count in row(done.stdout, name))
    assert row(done.stdout, "tokens equal") == ["yes", "yes"]
    # Eager mode writes into the cache itself.
    for name in ("the cache", "a layer's keys"):
        assert row(done.stdout, f"allocations as large as {name}")[0] == "0"
    assert "vllm_ir: graph 1: functionalize" in done.stderr


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_IR_PROGRESS", "0")  # which the import would set for all tests after this one
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import paged_decoder

    return paged_decoder


def test_a_difference_beyond_the_limit_is_a_failure(
    example, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(example, "TOLERANCE", -1.0)
    assert example.main([*SMALL, *EAGER, "--layers", "1"]) == 1
    output = capsys.readouterr().out
    assert "FAILED vllm_ir_eager: logits off by" in output
    assert "FAILED vllm_ir_eager: cache off by" in output


def test_first_rejection_of_each_provider_is_shown(example, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ir.tools.reports import CompileReport

    prompt = CompileReport(0, "vllm_ir", "inference", selected_impls={"norm": {"a": "cpu", "b": "native"}})
    prompt.rejected_impls = {"norm": {"a": [], "b": [("fast", "no GPU"), ("cpu", "not dense")]}}
    step = CompileReport(1, "vllm_ir", "inference", selected_impls={"norm": {"a": "native"}})
    step.rejected_impls = {"norm": {"a": [("cpu", "another reason")]}}
    monkeypatch.setattr(example.ir, "compile_reports", lambda: [prompt, step])
    console = Console(width=100)
    with console.capture() as captured:
        console.print(example._kernel_table("vllm_ir"))
    lines = [line.split("│") for line in captured.get().splitlines() if line.startswith("│ norm")]
    assert [[cell.strip() for cell in line[1:-1]] for line in lines] == [
        ["norm", "cpu", "1", "0", ""],
        ["norm", "native", "1", "1", "fast: no GPU; cpu: not dense"],
    ]


def test_allocations_of_a_call_are_counted(example) -> None:
    kept: list[torch.Tensor] = []

    def call() -> None:
        kept.append(torch.empty(1000, dtype=torch.uint8))
        torch.empty(3000, dtype=torch.uint8)
        kept.append(torch.empty(500, dtype=torch.uint8))

    memory = example.step_memory(call)
    assert memory.allocations == (1000, 3000, 500)
    assert memory.peak == 4000
    assert [memory.count(least) for least in (500, 1000, 3001)] == [3, 2, 0]


def test_slots_are_those_of_the_block_table(example) -> None:
    places = example.places_at(torch.tensor([[2, 0], [3, 1]]), 15, 3)
    assert places.positions.tolist() == [[15, 16, 17], [15, 16, 17]]
    assert places.slots.tolist() == [47, 0, 1, 63, 16, 17]


@pytest.mark.parametrize(
    "arguments", [["--steps", "2"], ["--layers", "0"], ["--hidden", "100"], ["--sequences", "0"], ["--blocks", "3"]]
)
def test_wrong_sizes_are_refused(example, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        example.main(arguments)
    assert "must be" in capsys.readouterr().err
