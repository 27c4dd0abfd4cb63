"""Training steps and tensor subclasses through AOTAutograd with our pipeline as its compilers."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from vllm_ir.tools.compile import vllm_ir, vllm_ir_eager
from vllm_ir.tools.reports import clear_compile_reports, compile_reports

BACKENDS = pytest.mark.parametrize("backend", [vllm_ir_eager, vllm_ir], ids=["eager", "inductor"])


@torch.library.custom_op("compile_gradients::scale", mutates_args=())
def scale(x: Tensor, factor: float) -> Tensor:
    return x * factor


def keep_factor(ctx, inputs, output) -> None:
    ctx.factor = inputs[1]


scale.register_fake(lambda x, factor: torch.empty_like(x))
scale.register_autograd(lambda ctx, gradient: (gradient * ctx.factor, None), setup_context=keep_factor)


@torch.library.custom_op("compile_gradients::count_rows", mutates_args=("counter",))
def count_rows(counter: Tensor, x: Tensor) -> None:
    counter.add_(x.shape[0])


class Mlp(nn.Module):
    """Updates a running mean and a counter in place while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("rows", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(hidden.mean(0), alpha=0.1)
        count_rows(self.rows, x)
        return self.second(scale(torch.relu(hidden - self.mean), 1.5))


def step(module: nn.Module, run, x: Tensor) -> Tensor:
    module.zero_grad()
    loss = run(x).square().sum()
    loss.backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.sub_(parameter.grad, alpha=0.01)
    return loss.detach()


@BACKENDS
def test_training_gives_the_losses_gradients_and_buffers_of_eager(backend):
    torch.manual_seed(0)
    expected = Mlp()
    trained = copy.deepcopy(expected)
    run = torch.compile(trained, backend=backend, fullgraph=True)
    clear_compile_reports()
    for rows in (5, 6, 7):  # the second graph has symbolic sizes, which the backward pass takes too
        x = torch.randn(rows, 4)
        # Inductor's reductions add in another order than eager's: a few roundings of float32.
        torch.testing.assert_close(step(trained, run, x), step(expected, expected, x))
    for got, wanted in zip(trained.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)
    for got, wanted in zip(trained.buffers(), expected.buffers(), strict=True):
        torch.testing.assert_close(got, wanted)
    assert [report.kind for report in compile_reports()] == ["forward", "backward"] * 2
    assert len(compile_reports()[0].mutated) == 2


@BACKENDS
def test_parameters_need_no_gradients_where_gradients_are_off(backend):
    module = Mlp()
    run = torch.compile(module, backend=backend, fullgraph=True)
    clear_compile_reports()
    with torch.no_grad():
        x = torch.randn(5, 4)
        torch.testing.assert_close(run(x), Mlp.forward(copy.deepcopy(module), x), atol=1, rtol=1)
    assert [report.kind for report in compile_reports()] == ["inference"]
    assert module.rows.item() == 5


@BACKENDS
def test_tensor_subclasses_are_taken_apart(backend):
    def program(x: Tensor) -> Tensor:
        x.mul_(2)
        return x + 1

    x = TwoTensor(torch.ones(3), torch.full((3,), 5.0))
    with torch.no_grad():
        result = torch.compile(program, backend=backend, fullgraph=True)(x)
    assert isinstance(result, TwoTensor)
    assert (result.a.tolist(), result.b.tolist()) == ([3.0] * 3, [11.0] * 3)
    assert (x.a.tolist(), x.b.tolist()) == ([2.0] * 3, [10.0] * 3)


def test_overlapping_arguments_get_an_artifact_of_their_own():
    def program(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
        a.add_(1)
        return a * b * weight

    weight = torch.full((4,), 3.0, requires_grad=True)
    run = torch.compile(program, backend=vllm_ir_eager)
    run(torch.ones(4), torch.ones(4), weight)
    base, expected = torch.arange(6.0), torch.arange(6.0)
    result = run(base[:4], base[1:5], weight)
    assert torch.equal(result, program(expected[:4], expected[1:5], weight))
    assert torch.equal(base, expected)
    result.sum().backward()
    assert weight.grad is not None
