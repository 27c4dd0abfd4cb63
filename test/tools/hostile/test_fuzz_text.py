"""The text fuzzer: a fixed slice finds nothing, and a planted bug is found, made smaller and kept."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from vllm_ir.dialects.torch import syntax
from vllm_ir.dialects.vllm_ir.norms import RmsNormOp
from vllm_ir.tools.fuzz_text import __main__ as program
from vllm_ir.tools.fuzz_text.corpus import corpus
from vllm_ir.tools.fuzz_text.judge import judge
from vllm_ir.tools.fuzz_text.minimise import minimise
from vllm_ir.tools.fuzz_text.mutations import Mutator, tokens

ROOT = Path(__file__).parents[2]
NORM = """\
vllm_ir.func @main(%x: tensor<4x8xbf16>) -> (tensor<4x8xbf16>) {
  %y = torch.call @aten.neg.default(%x) : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
  %r = vllm_ir.rms_norm %y : tensor<4x8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<4x8xbf16>
  vllm_ir.return %r : tensor<4x8xbf16>
}
"""


@pytest.fixture(name="seeds", scope="module")
def starting_points() -> list[str]:
    return corpus(ROOT)


def _findings(seeds: list[str], seed: int, count: int) -> list[str]:
    random = Random(seed)
    mutator = Mutator(seeds, random)
    found: list[str] = []
    for _ in range(count):
        text = mutator.next()
        if (finding := judge(text, Random(random.getrandbits(32)))) is not None:
            found.append(f"{finding.stage}: {finding.what}\n{text}")
    return found


def test_a_slice_finds_nothing(seeds: list[str]):
    assert _findings(seeds, 1, 250) == []


@pytest.mark.slow
def test_a_longer_slice_finds_nothing(seeds: list[str]):
    assert _findings(seeds, 2, 20_000) == []


def test_the_same_seed_gives_the_same_texts(seeds: list[str]):
    first, second = (Mutator(seeds, Random(7)) for _ in range(2))
    texts = [first.next() for _ in range(50)]
    assert texts == [second.next() for _ in range(50)]
    assert len(set(texts)) > 40


def test_tokens_are_the_text(seeds: list[str]):
    for text in (*seeds, 'é \0 \n\t" \\ // x\n'):
        assert "".join(tokens(text)) == text


@pytest.mark.parametrize(
    ("patched", "name", "replacement", "what"),
    [
        (syntax, "_float_text", lambda value: f"{value:.1e}", "Different"),
        (RmsNormOp, "verify_", lambda self: 1 / 0, "ZeroDivisionError"),
        (RmsNormOp, "verify_", lambda self: time.sleep(5), "TooSlowError"),
    ],
    ids=["printing", "crash", "hang"],
)
def test_planted_bugs_are_found(monkeypatch, tmp_path: Path, patched, name: str, replacement, what: str):
    monkeypatch.setattr(program, "SECONDS", 1)
    monkeypatch.setattr(patched, name, replacement)
    text = NORM.replace("@aten.neg.default(%x)", "@aten.mul.Tensor(%x, 1.23456789)")
    finding = program._timed(text, 0)
    assert finding is not None
    assert finding.what.startswith(what)
    program._keep(tmp_path, text, 0, finding, tmp_path / "current.mlir")
    [kept] = [path for path in tmp_path.glob("*.mlir") if path.name != "current.mlir"]
    assert what in kept.with_suffix(".txt").read_text()
    assert len(kept.read_text()) <= len(text)


def test_findings_are_made_smaller():
    asked: list[str] = []

    def shows(text: str) -> bool:
        asked.append(text)
        return "rms_norm" in text and "epsilon" in text

    small = minimise(NORM, shows, 300)
    assert "rms_norm" in small
    assert len(small) < 30
    assert len(asked) <= 300
    assert minimise(NORM, shows, 0) == NORM


def test_as_a_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    status = program.main(["--count", "20", "--minutes", "2", "--out", str(tmp_path), "--corpus", str(ROOT)])
    assert status == 0
    assert "20 inputs" in capfd.readouterr().out
    assert list(tmp_path.glob("*.mlir")) == []


def test_a_worker_that_dies_leaves_its_input(monkeypatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    real = program.subprocess.Popen

    def dying(command: list[str]) -> object:
        (tmp_path / "current.mlir").write_text("bad")
        return real(["sh", "-c", "kill -SEGV $$"])

    monkeypatch.setattr(program.subprocess, "Popen", dying)
    assert program.main(["--minutes", "0", "--out", str(tmp_path)]) == 1
    assert [path.read_text() for path in tmp_path.glob("crash-1-*.mlir")] == ["bad"]
    assert "FINDING" in capfd.readouterr().out
