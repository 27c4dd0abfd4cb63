"""The benchmark of lowering prints its figures; how long anything takes is not tested, how often it is done is."""

from pathlib import Path

import pytest

from vllm_ir.conversions import lower

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import lowering

    return lowering


@pytest.mark.parametrize("provider", ["native", "cpu"])
def test_an_implementation_is_traced_once_for_128_nodes(
    benchmark, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    traced: list[object] = []
    original = lower.trace_callable
    monkeypatch.setattr(lower, "trace_callable", lambda *args: traced.append(args) or original(*args))
    benchmark.lower_chain(128, provider)
    assert len(traced) == 1


def test_figures_are_printed(benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main(["--nodes", "8", "--repeat", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [line.rsplit(maxsplit=3) for line in lines if line.startswith(" lower,") or "make_fx" in line]
    assert [(name.strip(), nodes) for name, nodes, *_ in cells] == [
        ("lower, one", "1"),
        ("lower, all", "8"),
        ("lower, after the first", "7"),
        ("make_fx for each", "7"),
    ]
    assert lines[-1].startswith("tracing each of 7 nodes / lowering them after the first: ")
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(["--nodes", "1"])
