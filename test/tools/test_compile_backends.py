"""Programs through both backends of `torch.compile`, and graphs handed to them directly."""

import operator
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch._dynamo.exc import BackendCompilerFailed

from vllm_ir.tools.compile import vllm_ir, vllm_ir_eager
from vllm_ir.tools.reports import clear_compile_reports, compile_reports

BACKENDS = pytest.mark.parametrize("backend", [vllm_ir_eager, vllm_ir], ids=["eager", "inductor"])
pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def check(program: Callable[..., object], run: Callable[..., object], *inputs: Tensor) -> list[object]:
    """Results and inputs after the call equal those of eager; returns the results."""
    expected_inputs = [value.clone() for value in inputs]
    expected = program(*expected_inputs)
    results = run(*inputs)
    for result, wanted in zip((*results, *inputs), (*expected, *expected_inputs), strict=True):
        assert torch.equal(result, wanted)
    return results


@BACKENDS
def test_writes_aliases_and_fresh_results(backend):
    def program(x: Tensor, y: Tensor):
        x[1:].mul_(2)
        old = y.clone()
        y.copy_(x[0] + y)
        return x, y.view(-1), x * 1, old, y + 0, None

    def flat(x: Tensor, y: Tensor):
        return program(x, y)[:5]

    x, y = torch.randn(3, 4), torch.randn(4)
    run = torch.compile(program, backend=backend, fullgraph=True)
    results = check(flat, lambda x, y: run(x, y)[:5], x, y)
    assert results[0] is x
    assert results[1].untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    storages = {value.untyped_storage().data_ptr() for value in (x, y, *results)}
    assert len(storages) == 5


@BACKENDS
def test_sizes_that_change_share_one_graph(backend):
    def program(x: Tensor, y: Tensor):
        x[:, : y.shape[0]].add_(1)
        return x * y.shape[0], x[:, 1:] * 2

    run = torch.compile(program, backend=backend, dynamic=True, fullgraph=True)
    clear_compile_reports()
    for size in (3, 4, 6):
        check(program, run, torch.randn(size, size + 4), torch.randn(size))
    assert len(compile_reports()) == 1


@BACKENDS
def test_graph_breaks_make_several_graphs(backend):
    def program(x: Tensor):
        x.add_(1)
        y = x * 2
        torch._dynamo.graph_break()
        y.add_(x)
        return (y,)

    clear_compile_reports()
    check(program, torch.compile(program, backend=backend), torch.randn(4))
    assert len(compile_reports()) == 2


@BACKENDS
def test_threads_compile_and_run_at_once(backend):
    failures: list[BaseException] = []

    def work(factor: int) -> None:
        def program(x: Tensor):
            return x.mul_(factor) + factor, x

        try:
            run = torch.compile(program, backend=backend)
            with torch.no_grad():
                for _ in range(3):
                    check(program, run, torch.randn(5))
        except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def graph_with_state() -> fx.GraphModule:
    root = nn.Module()
    root.register_buffer("step", torch.zeros(1))
    graph = fx.Graph()
    x = graph.placeholder("x")
    step = graph.get_attr("step")
    graph.call_method("add_", (step, 1.0))
    graph.call_function(operator.setitem, (x, 0, 9.0))
    graph.output(graph.call_function(operator.add, (x, step)))
    return fx.GraphModule(root, graph)


@BACKENDS
def test_a_graph_built_by_hand_writes_its_modules_buffer(backend):
    gm = graph_with_state()
    run = backend(gm, [torch.ones(3)])
    assert gm.step.item() == 0
    for steps in (1, 2):
        x = torch.ones(3)
        assert run(x).tolist() == [9.0 + steps, 1.0 + steps, 1.0 + steps]
        assert x.tolist() == [9.0, 1.0, 1.0]
        assert gm.step.item() == steps
    # Whatever tensor the module holds when the graph is called is the one that is used.
    gm.step = torch.full((1,), 10.0)
    assert run(torch.ones(3))[1].item() == 12.0
    assert gm.step.item() == 11.0


@BACKENDS
def test_autocast_applies_once_and_not_where_it_is_off(backend):
    def program(x: Tensor, w: Tensor):
        half = x @ w
        with torch.autocast("cpu", enabled=False):
            full = x @ w
        return half, full

    x, w = torch.randn(3, 4), torch.randn(4, 2)
    run = torch.compile(program, backend=backend, fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half, full = run(x, w)
        expected = program(x, w)
    assert (half.dtype, full.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(half, expected[0])
    torch.testing.assert_close(full, expected[1])


@BACKENDS
def test_inference_mode(backend):
    def program(x: Tensor):
        x.add_(1)
        return x * 2, x[1:]

    run = torch.compile(program, backend=backend, fullgraph=True)
    with torch.inference_mode():
        check(program, run, torch.randn(3))


def test_errors_of_the_compiler_surface_as_those_of_a_backend():
    run = torch.compile(lambda x: x + 1, backend=vllm_ir, options={"max_autotun": True})
    with pytest.raises(BackendCompilerFailed, match="unknown option 'max_autotun'"):
        run(torch.ones(2))


def test_backends_are_found_by_name():
    run = torch.compile(lambda x: x.add_(1), backend="vllm_ir_eager", mode="max-autotune", options=None)
    clear_compile_reports()
    assert run(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert [report.backend for report in compile_reports()] == ["vllm_ir_eager"]


_LIBRARY = torch.library.Library("backends_test", "DEF")
_LIBRARY.define("reverse_into(Tensor(a!) x, Tensor y) -> ()")
_LIBRARY.define("extend(Tensor(a!)[] xs, Tensor[] ys) -> Tensor[]")


def _reverse_into(x: Tensor, y: Tensor) -> None:
    for position in range(x.shape[0]):
        x[position] = y[-1 - position]


def _extend(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    for x, y in zip(xs, ys, strict=True):
        x.add_(y)
    return [x * 2 for x in xs]


_LIBRARY.impl("reverse_into", _reverse_into, "CompositeExplicitAutograd")
_LIBRARY.impl("extend", _extend, "CompositeExplicitAutograd")
torch.library.register_fake("backends_test::reverse_into", lambda x, y: None, lib=_LIBRARY)
torch.library.register_fake("backends_test::extend", lambda xs, ys: [torch.empty_like(x) for x in xs], lib=_LIBRARY)


@BACKENDS
def test_operands_of_equal_values_are_different_memory(backend):
    def program(x: Tensor, y: Tensor):
        x.copy_(y)
        torch.ops.backends_test.reverse_into(x, y)
        first, second = torch.empty_like(y), torch.empty_like(y)
        first.copy_(y)
        second.copy_(y)
        torch.ops.backends_test.reverse_into(first, second)
        torch._foreach_mul_([first, second], 2.0)
        return first, second

    check(program, torch.compile(program, backend=backend, fullgraph=True), torch.randn(5), torch.randn(5))


@BACKENDS
def test_lists_in_which_one_item_feeds_the_next(backend):
    def program(x: Tensor, y: Tensor):
        torch._foreach_add_([x, y], [y, x])
        a, b = torch.ops.backends_test.extend([x, x], [x, y])
        t = x.clone()
        torch._foreach_add_([t, y], [y, t])
        return a, b, t

    check(program, torch.compile(program, backend=backend, fullgraph=True), torch.randn(5), torch.randn(5))


@BACKENDS
def test_views_that_depend_on_sizes_are_returned(backend):
    def program(x: Tensor):
        first, second = x.split(x.shape[0] // 2 + x.shape[0] % 2)
        second.mul_(3)
        diagonal = x.as_strided((x.shape[0],), (x.shape[1] + 1,))
        diagonal.add_(1)
        return first, diagonal, x[x.shape[0] - 2 :, x.shape[1] // 2 :]

    run = torch.compile(program, backend=backend, dynamic=True, fullgraph=True)
    for size in (4, 7):
        results = check(program, run, x := torch.randn(size, size))
        assert all(result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for result in results)


@BACKENDS
def test_strides_of_results_are_those_of_eager_to_the_last(backend):
    def program(x: Tensor, y: Tensor, empty: Tensor):
        return torch.ones_like(x), x + 1, x.clone(), torch.copysign(y, y.relu() + 1), y.t().contiguous(), empty + 1

    inputs = torch.randn(1, 5).t(), torch.randn(5, 4).t(), torch.zeros(0, 3).t()
    results = torch.compile(program, backend=backend, fullgraph=True)(*inputs)
    for result, wanted in zip(results, program(*inputs), strict=True):
        assert torch.equal(result, wanted)
        assert result.stride() == wanted.stride()


@BACKENDS
def test_what_eager_refuses_is_refused(backend):
    for program in (lambda i: i.softmax(-1), lambda i: i**-1, lambda i: torch.round(i > 1)):
        with pytest.raises(BackendCompilerFailed, match=r"test_compile_backends\.py:\d+\): eager refuses it"):
            torch.compile(program, backend=backend, fullgraph=True)(torch.arange(4))
