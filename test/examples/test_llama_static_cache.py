"""The example runs to its end, and notices every kind of wrong result."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    small = ("--layers", "2", "--hidden", "64", "--steps", "4")
    command = [sys.executable, str(EXAMPLES / "llama_static_cache.py"), *small, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def row(output: str, name: str) -> list[str]:
    """Cells of the table row that starts with `name`, without the name."""
    found = re.findall(rf"^│ {re.escape(name)} +│(.*)│$", output, re.MULTILINE)
    assert len(found) == 1, f"{len(found)} rows {name!r} in\n{output}"
    return [cell.strip() for cell in found[0].split("│")]


def test_small_model_agrees_with_eager(tmp_path: Path) -> None:
    done = run_example("--backend", "vllm_ir_eager", "--no-inductor", "--keep", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "All results agree." in done.stdout
    # Keys, values and length of two layers, in the graph of the prompt and in that of a step.
    assert row(done.stdout, "mutated arguments") == ["6", "6"]
    for level in ("ops at buffer level", "ops at tensor level", "ops after lower", "exported graph nodes"):
        assert all(int(count) > 100 for count in row(done.stdout, level))
    assert row(done.stdout, "tokens equal") == ["yes", "yes"]
    assert [cells[-1] for name in TEXTS for cells in [row(done.stdout, name)]] == ["ok"] * len(TEXTS)
    assert "vllm_ir: graph 1: functionalize" in done.stderr
    functional = (tmp_path / "decode.functional.mlir").read_text()
    assert functional.count("vllm_ir.write") == 6
    assert "writes(" not in functional


TEXTS = (
    "decode graph, imported",
    "decode graph, functional",
    "decode_step.pt2, functional",
    "llama_decode_step.py:decode, functional",
)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import llama_static_cache

    return llama_static_cache


def candidate(example, tokens: Sequence[int], logits: torch.Tensor, cached: Sequence[torch.Tensor]):
    return example.Candidate("one", None, None, example.Generation(list(tokens), logits, []), list(cached), [])


def test_differences_are_failures(example) -> None:
    logits, cached = torch.ones(2, 3), [torch.ones(4), torch.tensor(7)]
    eager = candidate(example, [1, 2], logits, cached)

    def failures(tokens=(1, 2), logits=logits, cached=cached) -> list[str]:
        return list(example._failures([eager, candidate(example, tokens, logits, cached)]))

    assert failures() == []
    assert failures(logits=logits + 1e-6) == []
    assert failures(tokens=(1, 3)) == ["one: tokens [1, 3], eager gives [1, 2]"]
    assert len(failures(logits=logits + 1e-4)) == 1
    assert len(failures(logits=logits * float("nan"))) == 1
    assert len(failures(logits=logits[:1])) == 1
    assert len(failures(cached=[cached[0], cached[1] + 1])) == 1


def test_a_comparison_fails_beyond_its_limit(example) -> None:
    comparison = example.Comparison("text", 10, 0.0, 0.0)
    assert comparison.passed
    assert not replace(comparison, difference=1e-30).passed
    assert not replace(comparison, difference=float("nan")).passed


@pytest.mark.parametrize("arguments", [["--steps", "2"], ["--layers", "0"], ["--hidden", "100"]])
def test_wrong_sizes_are_refused(example, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        example.main(arguments)
    assert "must be" in capsys.readouterr().err
