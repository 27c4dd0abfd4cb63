"""A bounded slice of the fuzzer on a fixed seed, the programs that failed once, and what the fuzzer itself promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vllm_ir.tools.fuzz import cases
from vllm_ir.tools.fuzz.campaign import Campaign, CampaignError, Totals
from vllm_ir.tools.fuzz.command_line import main
from vllm_ir.tools.fuzz.generate import generate
from vllm_ir.tools.fuzz.judge import expected, judge
from vllm_ir.tools.fuzz.observe import difference
from vllm_ir.tools.fuzz.paths import PATHS
from vllm_ir.tools.fuzz.program import Loaded, load
from vllm_ir.tools.fuzz.run import run_program
from vllm_ir.tools.fuzz.settings import FAILED, Settings
from vllm_ir.tools.fuzz.shrink import shrink
from vllm_ir.tools.fuzz.simulate import check

CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
SLICE = {"vllm_ir_eager": 25, "graph": 20, "interpreter": 12, "text": 8, "vllm_ir_xla": 8, "vllm_ir": 2}
"""Programs by path."""


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("path", SLICE)
def test_slice(path: str):
    settings = Settings(0, (path,), shrink_seconds=0.0)
    for index in range(SLICE[path]):
        for verdict in run_program(settings, index, set()).verdicts:
            assert verdict.outcome != FAILED, f"program {index} of seed 0: {verdict.kind}\n{verdict.text}"


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_case(file: Path):
    loaded = cases.read(file)
    seen = expected(loaded)
    for path in loaded.paths:
        verdict = judge(loaded, path, seen)
        assert verdict.outcome != FAILED, f"{verdict.kind}\n{verdict.text}"


def test_programs_are_those_of_their_seed_and_number():
    assert generate(3, 11).source == generate(3, 11).source
    assert generate(3, 11).source != generate(4, 11).source


def test_programs_do_the_same_twice():
    for index in range(40):
        loaded = load(generate(5, index).source, f"twice_{index}.py")
        assert difference(expected(loaded), expected(loaded)) is None, index


def _changed(loaded: Loaded, old: str, new: str) -> Loaded:
    assert old in loaded.source
    return load(loaded.source.replace(old, new), "changed.py")


PROGRAM = """
import torch

PATHS = []
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def inputs(call):
    m = torch.arange(12.0)
    return m.as_strided((2, 4), (6, 1), 0), m.as_strided((2,), (6,), 5)


def program(a, b):
    a[0].add_(1)
    return a[1], b * 2, None


def make():
    return program
"""


@pytest.mark.parametrize(
    ("fact", "old", "new"),
    [
        ("results", "b * 2", "b * 3"),
        ("results", "b * 2", "(b * 2).double()"),
        ("structure", "a[1], b * 2, None", "[a[1], b * 2, None]"),
        ("structure", "None", "None, None"),
        ("results", "None", "1"),
        ("memory", "a[0].add_(1)", "a[0].add_(1), a.as_strided((1,), (1,), 4).zero_()"),
        ("shared memory", "a[1], b", "a[1].clone(), b"),
        ("results", "b * 2", "torch.stack([b * 2, b], 1)[:, 0]"),
        ("arguments", "return a[1]", "a.t_()\n    return a[:, 1]"),
    ],
)
def test_what_the_caller_sees_is_compared(fact: str, old: str, new: str):
    loaded = load(PROGRAM, "program.py")
    differs = difference(expected(loaded), expected(_changed(loaded, old, new)))
    assert differs is not None
    assert differs.fact == fact, differs.text


def test_failures_are_shrunk_to_what_matters():
    program = next(g.program for g in (generate(0, i) for i in range(200)) if _writes_by_mul(g.source))
    smallest = shrink(program, lambda candidate: any(".mul_(" in s.template for s in candidate.body), 60)
    check(smallest)
    assert len(smallest.body) <= 3
    assert len(smallest.calls) == 1
    assert not smallest.returns


def _writes_by_mul(source: str) -> bool:
    return ".mul_(" in source and source.count("\n") > 30


def test_stored_cases_run_by_themselves(tmp_path: Path):
    file = cases.store(tmp_path, "vllm_ir: a Name", generate(0, 3).source)
    assert file.name == "vllm_ir_a_name.py"
    done = subprocess.run(
        [sys.executable, "-c", f"exec(open({str(file)!r}).read()); print(make()(*inputs(0)) is None)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_campaigns_go_on_where_they_stopped(tmp_path: Path):
    state = tmp_path / "state.json"
    settings = Settings(7, ("graph",), shrink_seconds=0.0)
    lines: list[str] = []
    first = Campaign(settings, 0, 10, state=state, report=lines.append).run()
    assert first.programs == 10
    assert json.loads(state.read_text())["totals"]["done"] == [0]
    again = Campaign(settings, 0, 10, state=state, report=lines.append).run()
    assert again.programs == 10, "what is done is not run again"
    with pytest.raises(CampaignError, match="is of seed, paths and start"):
        Campaign(Settings(8, ("graph",)), 0, 10, state=state, report=lines.append).run()


def test_a_crash_is_a_failure_of_one_program():
    totals = Totals()
    assert totals.crashed(4, ("graph",), "the process ended with code -11") == (
        "program 4: the process ended with code -11"
    )
    assert totals.outcomes == {"graph": {FAILED: 1}}


def test_unknown_paths_are_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["--paths", "nowhere"]) == 2
    assert capsys.readouterr().err == f"fuzz: error: unknown path 'nowhere'; paths are {', '.join(PATHS)}\n"
