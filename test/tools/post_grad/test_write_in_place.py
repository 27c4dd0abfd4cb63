"""Writes put back into Inductor's graph, by the backend and by `PostGradPass` under Inductor alone."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.utils import counters
from torch._inductor import config, metrics
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.profiler import ProfilerActivity, profile

import vllm_ir as ir

_SPEC = importlib.util.spec_from_file_location("post_grad_programs", Path(__file__).with_name("programs.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
programs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(programs)


@pytest.fixture(autouse=True)
def clean():
    torch._dynamo.reset()
    ir.clear_compile_reports()
    with torch.no_grad():
        yield


def compiled(function: Callable[..., object], how: str, **options: bool) -> Callable[..., object]:
    if how == "backend":
        return torch.compile(function, backend="vllm_ir", fullgraph=True, **options)
    return torch.compile(function, fullgraph=True, **options)


def under(how: str):
    return config.patch(post_grad_custom_post_pass=ir.PostGradPass()) if how == "pass" else config.patch()


def largest_allocation(call: Callable[[], object]) -> int:
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    events = recorded.profiler.kineto_results.events()
    return max((event.nbytes() for event in events if event.name() == "[memory]"), default=0)


def leaves(value: object) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def check(function: Callable[..., object], call: Callable[..., object], arguments: Sequence[Tensor]) -> None:
    """`call` gives what `function` does, twice in a row: results and arguments, to the rounding of `exp`."""
    ours, theirs = [a.clone() for a in arguments], [a.clone() for a in arguments]
    for _ in range(2):
        got, want = leaves(call(*ours)), leaves(function(*theirs))
        torch.testing.assert_close([*got, *ours], [*want, *theirs], rtol=2e-6, atol=0)
        pointers = {a.untyped_storage().data_ptr() for a in (*ours, *got)}
        assert len(pointers) == len(ours) + len(got)  # results are new memory


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.slow), True], ids=["static", "dynamic"])
@pytest.mark.parametrize("how", ["backend", "pass"])
@pytest.mark.parametrize("program", programs.CACHES, ids=lambda f: f.__name__)
def test_a_cache_of_all_layers_is_written_where_it_is(program: Callable[..., object], how: str, dynamic: bool):
    if dynamic and how == "pass" and program is programs.stacked_custom:
        pytest.skip("Inductor's front end gives windows of dynamic sizes by their strides: right, but copied")
    arguments = programs.cache_arguments()
    with under(how):
        call = compiled(program, how, dynamic=dynamic)
        check(program, call, arguments)
    # Not even one layer's part of it is allocated.
    assert largest_allocation(lambda: call(*arguments)) < programs.ROWS * 8 * 4


@pytest.mark.parametrize("how", ["backend", "pass"])
@pytest.mark.parametrize("program", programs.HAZARDS, ids=lambda f: f.__name__)
def test_what_reads_the_memory_that_is_written_is_right(program: Callable[..., object], how: str):
    with under(how):
        check(program, compiled(program, how), [programs.square()])


def test_the_users_own_pass_runs_first():
    seen: list[bool] = []

    class Spy(CustomGraphPass):
        def __call__(self, graph: fx.Graph) -> None:
            seen.append(any(node.target is torch.ops.aten.index_put_.default for node in graph.nodes))

        def uuid(self) -> object:
            return None

    with config.patch(post_grad_custom_post_pass=Spy()):
        check(programs.stacked, compiled(programs.stacked, "backend"), programs.cache_arguments())
    assert seen == [False]


def test_graphs_come_from_inductors_cache():
    with torch._inductor.utils.fresh_cache(), config.patch(fx_graph_cache=True):
        for hits in (0, 1):
            torch._dynamo.reset()
            counters.clear()
            check(programs.stacked_custom, compiled(programs.stacked_custom, "backend"), programs.cache_arguments())
            assert counters["inductor"]["fxgraph_cache_hit"] == hits
    first, second = ir.compile_reports()
    assert first.clones_inserted == second.clones_inserted == first.clones_removed == second.clones_removed == 6
    assert first.copies == second.copies == []


def test_the_pass_has_an_identity_that_depends_on_its_options():
    assert ir.PostGradPass().uuid() == ir.PostGradPass().uuid()
    assert ir.PostGradPass().uuid() != ir.PostGradPass("functionalize,eliminate-clones").uuid()
    other = ir.PostGradPass(ir_op_priority={"rms_norm": ["cpu", "native"]})
    assert ir.PostGradPass().uuid() != other.uuid()


def test_a_pipeline_that_leaves_values_is_refused():
    with pytest.raises(ValueError, match=r"'functionalize,lower': what is put back .* ends in eliminate-clones"):
        ir.PostGradPass("functionalize,lower")


def test_branches_keep_their_graphs():
    def branches(x: Tensor, flag: Tensor) -> Tensor:
        x[0].add_(1)
        return torch.cond(flag, lambda y: y.sin() + 1, lambda y: y.cos() - 1, (x * 2,))

    for flag in (True, False):
        check(branches, compiled(branches, "backend"), [torch.randn(3, 4), torch.tensor(flag)])


def test_ops_of_the_project_are_lowered_by_the_pass():
    def normed(x: Tensor, weight: Tensor) -> Tensor:
        return ir.ops.rms_norm(x, weight, 1e-5) * 2

    def native(x: Tensor, weight: Tensor) -> Tensor:
        return ir.ops.rms_norm.native(x, weight, 1e-5) * 2

    x, weight = torch.randn(3, 8), torch.randn(8)
    counts: list[int] = []
    for function in (native, normed):
        with config.patch(post_grad_custom_post_pass=ir.PostGradPass(), fx_graph_cache=False):
            metrics.reset()
            got = torch.compile(function, fullgraph=True)(x, weight)
        torch.testing.assert_close(got, normed(x, weight), rtol=1e-5, atol=1e-6)
        counts.append(metrics.generated_kernel_count)
    assert counts[0] == counts[1] > 0  # seen into, and fused


def test_training_with_a_written_buffer():
    def step(x: Tensor, weight: Tensor, seen: Tensor) -> Tensor:
        seen[1].add_(x.detach().sum(0))
        return (x @ weight).relu().sum()

    def run(call: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(2)
        weight, seen = torch.randn(4, 3, requires_grad=True), torch.zeros(2, 4)
        loss = call(torch.randn(5, 4), weight, seen)
        loss.backward()
        assert weight.grad is not None
        return [loss.detach(), weight.grad, seen]

    with torch.enable_grad():
        want, got = run(step), run(torch.compile(step, backend="vllm_ir", fullgraph=True))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v


def mlp(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return x + torch.nn.functional.gelu(x @ up) @ down


@pytest.mark.parametrize("block", [attention, mlp], ids=lambda f: f.__name__)
def test_fusions_are_those_of_inductor(block: Callable[..., Tensor]):
    shapes = [(2, 4, 16, 16)] * 3 if block is attention else [(8, 16), (16, 32), (32, 16)]
    arguments = [torch.randn(shape) for shape in shapes]
    counts: list[int] = []
    with config.patch(fx_graph_cache=False):
        for backend in ("inductor", "vllm_ir"):
            torch._dynamo.reset()
            metrics.reset()
            got = torch.compile(block, backend=backend, fullgraph=True)(*arguments)
            torch.testing.assert_close(got, block(*arguments))
            counts.append(metrics.generated_kernel_count)
    assert counts[1] <= counts[0]
