"""Two threads compile two models at once under different priorities, and each gets its own."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import vllm_ir as ir

THREADS = 2


@pytest.fixture
def marked() -> Iterator[ir.IrOp]:
    """An op whose implementations tell by their results which of them ran."""

    @ir.register_op
    def threads_marked(x: Tensor) -> Tensor:
        return x + 1

    @threads_marked.register_impl("provider_0")
    def _(x: Tensor) -> Tensor:
        return x + 100

    @threads_marked.register_impl("provider_1")
    def _(x: Tensor) -> Tensor:
        return x + 200

    yield threads_marked
    ir.unregister(threads_marked)


def in_threads(backend: str, work: Callable[[int, threading.Barrier], None]) -> None:
    """Run `work` in each thread, with a barrier for all of them; the first error ends the others' wait."""
    torch._dynamo.lookup_backend(backend)  # where torch looks up entry points, threads disturb one another
    barrier = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number, barrier)
        except BaseException as error:  # noqa: BLE001  # raised below
            errors.append(error)
            barrier.abort()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(run, range(THREADS)))
    if errors:
        raise errors[0]


def model_of(op: ir.IrOp) -> type[nn.Module]:
    """A class of models with the op in it."""

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return op(x * 2) * 3

    # Dynamo keeps what it compiles by code object, and this function would have one for all classes.
    Model.forward.__code__ = Model.forward.__code__.replace()
    return Model


WANTED = ([306.0], [606.0])  # of 1


@pytest.mark.parametrize(("backend", "rounds"), [("vllm_ir_eager", 4), ("vllm_ir", 2)])
def test_priorities_of_the_context(marked: ir.IrOp, backend: str, rounds: int) -> None:
    def work(number: int, barrier: threading.Barrier) -> None:
        for _ in range(rounds):
            barrier.wait()
            compiled = torch.compile(model_of(marked)(), backend=backend, fullgraph=True)
            with marked.set_priority([f"provider_{number}"]):
                barrier.wait()  # both priorities are in force
                assert marked.get_priority() == [f"provider_{number}"]
                assert marked(torch.ones(1)).item() == 101 + 100 * number
                assert compiled(torch.ones(1)).tolist() == WANTED[number]
                barrier.wait()
            assert marked.get_priority() == []

    ir.clear_compile_reports()
    in_threads(backend, work)
    chosen = [list(report.selected_impls["threads_marked"].values()) for report in ir.compile_reports()]
    assert sorted(chosen) == sorted([[f"provider_{number}"] for number in range(THREADS)] * rounds)


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
def test_priorities_in_the_options(marked: ir.IrOp, backend: str) -> None:
    """Models of one class share what was compiled for them, but for the options."""
    model = model_of(marked)

    def work(number: int, barrier: threading.Barrier) -> None:
        options = {"ir_op_priority": {"threads_marked": [f"provider_{number}"]}}
        compiled = torch.compile(model(), backend=backend, fullgraph=True, options=options)
        barrier.wait()
        for _ in range(3):
            assert compiled(torch.ones(1)).tolist() == WANTED[number]

    in_threads(backend, work)
