"""The benchmark of decoding measures every figure and names what is too high; how long steps take is not tested."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "decode.py"
SMALL = ("--layers", "1", "--hidden", "32", "--tokens", "4", "--sequences", "1", "--blocks", "8")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    for folder in ("examples", "benchmarks"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import decode

    return decode


def test_every_figure_is_measured() -> None:
    command = [sys.executable, str(BENCHMARK), *SMALL, "--only", "mlp", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    header, _, eager, inductor, ours = [line.split() for line in done.stdout.splitlines() if line.strip()][:5]
    assert header == ["program", "variant", "ms", "peak", "MiB", "kernels", "time", "ratio", "peak", "ratio"]
    assert [eager[:2], inductor[0], ours[0]] == [["mlp", "eager"], "inductor", "vllm_ir"]
    assert all(float(cell) > 0 for cell in (*eager[2:4], *inductor[1:], *ours[1:]))
    assert eager[4] == "0"
    assert ours[3] == inductor[3]  # kernels
    assert "above its limit: " in done.stdout


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama-decode", "paged-decode", "prefill", "mlp", "attention", "attention-dropout"])
def test_forms_of_a_program_agree_and_repeat(benchmark, name: str) -> None:
    case = benchmark.CASES[name](benchmark.Shape(layers=2, hidden=32, tokens=4, blocks=8, sequences=1))
    forms = [benchmark.build("form", program) for program in (case.program, *case.baselines.values())]
    for form in forms:
        assert form.off_by(forms[0]) <= benchmark.TOLERANCE
        assert form.memory.peak > 0
        assert form.kernels == 0
        form.program.reset(form.arguments)
        assert torch.equal(form.function(*form.arguments), form.results[0])


def test_paged_decoder_writes_the_slots_of_one_token_in_every_layer(benchmark) -> None:
    case = benchmark.CASES["paged-decode"](benchmark.Shape(layers=2, hidden=32, tokens=4, blocks=8, sequences=1))
    for program in (case.program, *case.baselines.values()):
        arguments = program.make_arguments()
        before = [tensor.clone() for tensor in program.written(arguments)]
        program.function(*arguments)
        changed = [(old != new).flatten(2).any(-1) for old, new in zip(before, program.written(arguments), strict=True)]
        assert [slots.sum().item() for slots in changed] == [1, 1, 1, 1]


def variant(benchmark, milliseconds: float, peak: int, kernels: int, result: float = 0.0):
    from step_memory import StepMemory

    results, times = [torch.tensor([result])], [milliseconds / 1000, 1.0, milliseconds / 1000]
    return benchmark.Variant("name", None, None, (), results, kernels, StepMemory(peak, ()), times)


def test_figures_above_their_limits_are_named(benchmark) -> None:
    inductor = [variant(benchmark, 10, 200, 7), variant(benchmark, 20, 100, 6)]
    eager = variant(benchmark, 30, 50, 0)

    def measured(*figures: float):
        return benchmark.Measured("p", eager, inductor, variant(benchmark, *figures))

    assert list(measured(10.2, 100, 7).above_limits()) == []
    assert list(measured(10.3, 150, 8).above_limits()) == [
        "p: 1.030 of the time of the best Inductor, the limit is 1.02",
        "p: 1.500 of the peak memory of the best Inductor",
        "p: 8 kernels, Inductor needs 7 for the same program",
    ]


@pytest.mark.parametrize("wrong", [1e-4, float("nan"), float("inf")])
def test_results_that_differ_from_eager_mode_are_failures(benchmark, wrong: float) -> None:
    right, bad = variant(benchmark, 1, 1, 1), variant(benchmark, 1, 1, 1, result=wrong)
    assert list(benchmark.Measured("p", right, [right], right).failures()) == []
    assert len(list(benchmark.Measured("p", right, [right], bad).failures())) == 1
    assert len(list(benchmark.Measured("p", right, [bad], right).failures())) == 1


@pytest.mark.parametrize("arguments", [["--hidden", "40"], ["--rounds", "0"], ["--blocks", "31"]])
def test_wrong_sizes_are_refused(benchmark, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(arguments)
    assert "must be" in capsys.readouterr().err
