"""PyTorch's own samples through the IR and back to FX: what comes out is as listed, and the page says so."""

import json
from pathlib import Path

import pytest
import torch
from torch import fx

pytest.importorskip("xdsl_jax", reason="the page also tells what converts to StableHLO")
pytest.importorskip("expecttest", reason="PyTorch's samples import it")

from vllm_ir.tools import text
from vllm_ir.tools.operators import fx_report, fx_sweep, known, stablehlo_report
from vllm_ir.tools.operators.database import entries
from vllm_ir.tools.operators.fx_sweep import FUNCTION, IN_PLACE, OUT_WITH_GAPS, REFUSED, RIGHT, ROUNDED, Tally
from vllm_ir.tools.operators.observation import copied

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
DATA = PAGE.with_name("operators.json")

# Of each kind some: views, writes, random numbers, tuples, sizes that depend on elements, refusals.
SLICE = (
    "H",
    "addmm",
    "allclose",
    "as_strided",
    "bernoulli",
    "cumsum",
    "empty_like",
    "index_put",
    "linalg.lu_factor",
    "masked_scatter",
    "nn.functional.dropout",
    "nn.functional.pad (constant)",
    "nonzero",
    "resize_",
    "scatter_reduce (sum)",
    "sort",
    "split",
    "t",
    "unbind",
    "unique",
    "view_as_complex",
    "where",
)


def test_the_page_is_current(tmp_path: Path) -> None:
    for file in (PAGE, DATA, PAGE.with_name("stablehlo_operators.json")):
        (tmp_path / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    fx_report.main(tmp_path / PAGE.name)
    assert (tmp_path / PAGE.name).read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), (
        "run python -m vllm_ir.tools.operators.fx_report"
    )


def test_what_the_file_has_is_what_is_listed() -> None:
    stored = fx_report.read(DATA)
    assert known.problems(stored.entries) == []
    assert stored.torch == torch.__version__.partition("+")[0]
    assert len(stored.entries) > 0.95 * len(entries())
    tallies = [tally for variants in stored.entries.values() for tally in variants.values()]
    right = sum(tally.right + tally.rounded for tally in tallies)
    assert right >= 0.98 * sum(tally.samples for tally in tallies)


def test_the_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    fx_report.write(fx_report.read(DATA), tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_text(encoding="utf-8") == DATA.read_text(encoding="utf-8")
    json.loads(DATA.read_text(encoding="utf-8"))


def test_some_entries() -> None:
    found = fx_sweep.sweep(SLICE, print, most=1)
    assert known.problems(found) == []
    assert all(tallies[FUNCTION].samples for tallies in found.values())


@pytest.mark.slow
def test_all_entries() -> None:
    found = fx_sweep.sweep(list(entries()), print, jobs=2)
    assert known.problems(found) == []


def test_stablehlo_share() -> None:
    outcomes = stablehlo_report.read(PAGE.with_name("stablehlo_operators.json")).entries
    assert sum(outcome == stablehlo_report.CONVERTED for outcome in outcomes.values()) >= 0.6 * len(outcomes)


# --- what the sweep sees ---------------------------------------------------------------------------------------------


def _call(variant: str = FUNCTION, place: int = 0) -> fx_sweep.Call:
    calls = [call for call in fx_sweep.calls(entries()["addmm"], 2) if call.variant == variant]
    return calls[place]


@pytest.mark.parametrize(
    ("variant", "bug", "differing"),
    [
        (FUNCTION, lambda args, result: result + 1, "results"),
        (FUNCTION, lambda args, result: result.t().contiguous().t(), "results"),
        (FUNCTION, lambda args, result: args[0].copy_(result), "result_memory, same_objects, memory"),
        (FUNCTION, lambda args, result: (result, torch.rand(1))[0], "random_state"),
        (FUNCTION, lambda args, result: (result,), "structure"),
        (IN_PLACE, lambda args, result: result.clone(), "result_memory, same_objects"),
        (
            OUT_WITH_GAPS,
            lambda args, result: (result, torch.as_strided(result, (1,), (1,), 1).zero_())[0],
            "memory",
        ),
    ],
)
def test_what_differs_is_seen(monkeypatch: pytest.MonkeyPatch, variant: str, bug: object, differing: str) -> None:
    def export(module: object) -> object:
        graph = export_fx(module)
        return lambda *tensors: bug(tensors, graph(*tensors))

    export_fx = fx_sweep.export_fx
    monkeypatch.setattr(fx_sweep, "export_fx", export)
    outcome = str(_call(variant).outcome())
    if variant == OUT_WITH_GAPS:
        # Where results have gaps, sums are in another order, which rounds otherwise on some processors.
        outcome = outcome.replace("results, memory", "memory")
    assert outcome == f"wrong: the functional graph differs in {differing}"


def test_rounding_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(module: object) -> object:
        graph = export_fx(module)
        return lambda *tensors: graph(*tensors) * (1 + 2e-7)

    export_fx = fx_sweep.export_fx
    assert _call().outcome() == RIGHT
    monkeypatch.setattr(fx_sweep, "export_fx", export)
    assert _call().outcome() == ROUNDED


def test_text_that_is_read_as_something_else_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "parse", lambda text: "another module")
    assert "the text of the module is not that" in str(_call().outcome())


def test_copies_keep_what_tensors_share() -> None:
    base = torch.arange(6.0)
    first, second, third, lazy = copied([base[1:], base[::2], base[1:], torch.arange(2.0).to(torch.complex64).conj()])
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() != base.data_ptr()
    assert (second.stride(), first.storage_offset(), third.storage_offset()) == ((2,), 1, 1)
    assert lazy.is_conj()


def test_calls_are_graphs_that_fx_can_hold() -> None:
    graph = _call().graph()
    assert isinstance(graph, fx.GraphModule)
    assert [node.op for node in graph.graph.nodes] == [*["placeholder"] * 3, "call_function", "output"]


# --- what is listed --------------------------------------------------------------------------------------------------


def test_exceptions_have_to_be_listed_and_have_to_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Tally(right=1, others={f"{REFUSED}: no": 2})
    monkeypatch.setattr(known, "KNOWN", (known.Known("it cannot", "refused: no", ("a", f"b/{IN_PLACE}")),))
    assert known.problems({"a": {FUNCTION: refused}, "b": {FUNCTION: Tally(3), IN_PLACE: refused}}) == []
    assert known.problems({"b": {FUNCTION: refused, IN_PLACE: refused}}) == ["b/function: 2 samples: refused: no"]
    assert known.problems({"a": {FUNCTION: Tally(3)}}) == [
        "a: is listed as an exception but comes out right: it cannot"
    ]
    assert known.problems({"c": {FUNCTION: Tally(rounded=1)}}) == ["c/function: 1 samples: rounded"]
