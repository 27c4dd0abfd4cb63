"""Artifacts run only on arguments that lie in memory as those they were compiled for."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vllm_ir.tools.compile import vllm_ir_eager
from vllm_ir.tools.overlap import Arrangement, ArrangementCheck, CheckedCall, overlapping_groups, overlapping_pairs
from vllm_ir.tools.reports import compile_reports

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def test_pairs_and_groups_are_found_by_bytes_not_by_storages():
    base, other = torch.zeros(4, 6), torch.zeros(3)
    arguments = [base[:2], base[2:], other, 7, base[1:3], base[:, :3], base[:, 3:], base[0:0]]
    assert {frozenset(pair) for pair in overlapping_pairs(arguments)} == {
        frozenset(pair) for pair in [(0, 4), (1, 4), (0, 5), (0, 6), (1, 5), (1, 6), (4, 5), (4, 6)]
    }
    assert overlapping_groups([*arguments[:3], 7, other[1:]]) == [[2, 4]]
    assert overlapping_groups([base[:2], base[2:], base[1:3]]) == [[0, 1, 2]]


def test_an_arrangement_allows_what_is_only_read_to_overlap():
    base = torch.zeros(8)
    separate = Arrangement.of([torch.zeros(4), torch.zeros(4), torch.zeros(4)], frozenset({0}), [])
    assert separate.fits([torch.zeros(4), base[:4], base[2:6]])
    assert not separate.fits([base[:4], torch.zeros(4), base[2:6]])
    assert separate.fits([base[:4], base[4:], base[5:]])


def test_an_arrangement_with_overlaps_fits_at_the_same_distances_only():
    base = torch.zeros(12)
    shifted = Arrangement.of([base[:4], base[1:5], torch.zeros(2)], frozenset({0}), [[0, 1]])
    assert shifted.fits([base[3:7], base[4:8], torch.zeros(2)])
    assert not shifted.fits([base[3:7], base[5:9], torch.zeros(2)])
    assert not shifted.fits([torch.zeros(4), torch.zeros(4), torch.zeros(2)])
    assert shifted.fits([base[3:7], base[4:8], base[7:9]])
    assert not shifted.fits([base[3:7], base[4:8], base[6:8]])


def test_a_check_follows_tensors_that_move_and_sizes_that_change():
    base, apart = torch.zeros(16), torch.zeros(16)
    arguments = [base[:4], apart[:4], apart[8:12], 4]
    check = ArrangementCheck(Arrangement.of(arguments, frozenset({0}), []), arguments)
    assert check.holds(arguments)
    assert check.holds([base[:4], apart[1:5], apart[2:6], 4])
    assert check.holds([base[:4], base[4:8], apart[:4], 4])
    assert not check.holds([base[:4], base[3:7], apart[:4], 4])
    assert not check.holds([base[:5], base[4:9], apart[:5], 5])
    assert check.holds(arguments)


def test_beyond_the_limit_programs_run_uncompiled(caplog: pytest.LogCaptureFixture):
    made: list[str] = []

    def compile_for(arguments: object) -> Callable[..., object]:
        made.append("compiled")
        return lambda *_: "compiled"

    base = torch.zeros(16)
    arguments = [base[:4], base[8:12]]
    check = ArrangementCheck(Arrangement.of(arguments, frozenset({0}), []), arguments)
    call = CheckedCall(lambda *_: "first", check, compile_for, lambda *_: "uncompiled")
    with torch._dynamo.config.patch(recompile_limit=2):
        seen = [call(base[:4], base[distance : distance + 4]) for distance in (8, 1, 2, 1, 3, 4)]
    assert seen == ["first", "compiled", "compiled", "compiled", "uncompiled", "first"]
    assert len(made) == 2
    assert "overlap in more than 2 ways" in caplog.text


def program(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return a * b


def graph() -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(program)


def overlapping(distance: int) -> tuple[Tensor, Tensor, Tensor]:
    base = torch.arange(24.0)
    return base[:12].view(3, 4), base[distance : distance + 12].view(3, 4), base


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "direct"])
def test_overlapping_arguments_get_one_artifact_of_their_own(dynamo: bool):
    separate = torch.ones(3, 4), torch.full((3, 4), 2.0)
    run = torch.compile(program, backend=vllm_ir_eager) if dynamo else vllm_ir_eager(graph(), separate)
    assert torch.equal(run(*separate), torch.full((3, 4), 4.0))
    compiled_before = len(compile_reports())
    for distance, artifacts in ((4, 1), (4, 1), (12, 1), (0, 2), (5, 3)):
        a, b, base = overlapping(distance)
        expected_a, expected_b, expected_base = overlapping(distance)
        assert torch.equal(run(a, b), program(expected_a, expected_b)), distance
        assert torch.equal(base, expected_base), distance
        assert len(compile_reports()) - compiled_before == artifacts


def test_an_artifact_for_overlapping_arguments_does_not_run_on_separate_ones():
    run = torch.compile(program, backend=vllm_ir_eager)
    for distance in (4, 8, 12):
        a, b, base = overlapping(distance)
        expected_a, expected_b, expected_base = overlapping(distance)
        assert torch.equal(run(a, b), program(expected_a, expected_b))
        assert torch.equal(base, expected_base)


def windows(length: int, *slices: slice) -> tuple[Tensor, ...]:
    """Pieces of one new tensor, and the tensor itself at the end."""
    base = torch.arange(1.0, length + 1)
    return (*(base[piece] for piece in slices), base)


LAYOUTS = {
    "disjoint": lambda n: windows(2 * n, slice(0, n), slice(n, None)),
    "overlapping": lambda n: windows(n + 2, slice(0, n), slice(2, None)),
    "the same": lambda n: windows(n, slice(None), slice(None)),
    "separate": lambda n: (torch.ones(n), torch.full((n,), 3.0), torch.zeros(1)),
}


@pytest.mark.parametrize("first", LAYOUTS)
def test_dynamic_sizes_of_arguments_in_one_storage(first: str):
    def writes_both(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        b.mul_(2)
        return a * b[:1]

    run = torch.compile(writes_both, backend=vllm_ir_eager, dynamic=True, fullgraph=True)
    for layout in (first, *LAYOUTS):
        for size in (4, 5):
            a, b, base = LAYOUTS[layout](size)
            expected_a, expected_b, expected_base = LAYOUTS[layout](size)
            assert torch.equal(run(a, b), writes_both(expected_a, expected_b)), (layout, size)
            assert torch.equal(base, expected_base), (layout, size)
            assert torch.equal(a, expected_a), (layout, size)


def test_dynamic_sizes_of_disjoint_arguments_share_one_artifact():
    run = torch.compile(program, backend=vllm_ir_eager, dynamic=True, fullgraph=True)
    compiled_before = len(compile_reports())
    for size in (3, 4, 6):
        a, b, _ = LAYOUTS["disjoint"](size)
        expected_a, expected_b, _ = LAYOUTS["disjoint"](size)
        assert torch.equal(run(a, b), program(expected_a, expected_b))
    assert len(compile_reports()) - compiled_before == 1


def test_windows_placed_in_storages_follow_arguments_that_begin_elsewhere():
    def program(x: Tensor) -> Tensor:
        window = x.as_strided((3,), (1,), 10)
        window.add_(1)
        return x.as_strided((2,), (2,), 9) * 1

    torch.compiler.reset()
    compiled = torch.compile(program, backend=vllm_ir_eager, fullgraph=True)
    for offset in (4, 2, 4, 7):
        mine, theirs = torch.arange(20.0), torch.arange(20.0)
        assert torch.equal(compiled(mine[offset : offset + 6]), program(theirs[offset : offset + 6]))
        assert torch.equal(mine, theirs), offset
