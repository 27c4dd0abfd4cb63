"""Operators on lists of tensors, and operators that draw random numbers: equal numbers, equal state afterwards."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Check = Callable[..., None]


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape) / 8


LISTS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add of a number": lambda x, y: torch._foreach_add_([x, y], 1.5),
    "add of lists": lambda x, y: torch._foreach_add_([x, y.t()], [y * 2, x.t() + 1], alpha=2),
    "numbers": lambda x, y: torch._foreach_mul_([x, y], [2.0, 3.0]),
    "a tensor": lambda x, y: torch._foreach_mul_([x, y], torch.tensor(2.0)),
    "unary": lambda x, y: (torch._foreach_sqrt_([x, y]), torch._foreach_neg_([y])),
    "zero": lambda x, y: torch._foreach_zero_([x, y[0]]),
    "copy": lambda x, y: torch._foreach_copy_([x[0], x[1]], [y[1], y[0]]),
    "addcmul": lambda x, y: torch._foreach_addcmul_([x, y[1]], [x * 2, y[0]], [y * 2, x[1] + 1], 0.5),
    "lerp": lambda x, y: torch._foreach_lerp_([x], [y], 0.25),
    "rows": lambda x, y: torch._foreach_add_(list(x.unbind(0)), list(y.unbind(0))),
    "columns with gaps": lambda x, y: torch._foreach_sub_(list(x.unbind(1)), 1),
    "functional and writing": lambda x, y: torch._foreach_add_([x, y], torch._foreach_mul([y, x], 2)),
    "clamp": lambda x, y: torch._foreach_clamp_max_([x, y], [y * 0.5, x * 0.5]),
    "pow": lambda x, y: torch._foreach_pow_([x, y], [2, 3]),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name: str, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        LISTS[name](x, y)
        return x * 1, y * 1

    check(program, lambda: (numbers(3, 4), numbers(3, 4) * 3))


def test_list_whose_item_reads_what_another_writes_is_refused(refused: Callable[..., str]) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        torch._foreach_add_([x, y[1]], [y, x[0]])
        return x * 1, y * 1

    refused(program, lambda: (numbers(3, 4), numbers(3, 4)), match="overlaps the operand")


def test_foreach_sgd_with_momentum(check: Check) -> None:
    def program(parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]) -> None:
        torch._foreach_mul_(momenta, 0.9)
        torch._foreach_add_(momenta, gradients)
        torch._foreach_add_(parameters, momenta, alpha=-0.1)

    check(program, lambda: tuple([numbers(2, 3) + i, numbers(4) * i] for i in range(3)))


def test_fused_adam(check: Check) -> None:
    def program(p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor], steps: list[Tensor]) -> None:
        torch._fused_adam_(
            p, g, m, v, [], steps,
            lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    check(
        program,
        lambda: (*([numbers(2, 3) + i, numbers(4) * (i + 1)] for i in range(4)), [torch.ones(()), torch.ones(())]),
    )


# Random numbers. At least 16 elements: eager mode fills those by another loop than fewer.

RANDOM: dict[str, Callable[[Tensor], object]] = {
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "bernoulli_ of probabilities": lambda x: x.bernoulli_(torch.full(x.shape, 0.5)),
    "uniform_": lambda x: x.uniform_(-1, 2),
    "normal_": lambda x: x.normal_(1, 2),
    "exponential_": lambda x: x.exponential_(2),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "geometric_": lambda x: x.geometric_(0.4),
    "random_": lambda x: x.random_(),
    "random_ to": lambda x: x.random_(10),
    "random_ from to": lambda x: x.random_(3, 9),
    "dropout": lambda x: F.dropout(x, 0.4, training=True),
    "dropout in place": lambda x: F.dropout(x, 0.4, training=True, inplace=True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_dropout": lambda x: F.dropout1d(x, 0.4, training=True, inplace=True),
    "rrelu in place": lambda x: F.rrelu(x.neg_(), training=True, inplace=True),
    "rand": lambda x: x.add_(torch.rand(x.shape)),
    "rand_like": lambda x: x.copy_(torch.rand_like(x)),
    "bernoulli": lambda x: x.copy_(torch.bernoulli(x.clamp(0, 1))),
    "multinomial": lambda x: torch.multinomial(x.abs() + 0.1, 2),
    "randperm": lambda x: x[torch.randperm(x.shape[0])],
    "randn out=": lambda x: torch.randn(x.shape, out=x),
    "normal out=": lambda x: torch.normal(x, x.abs() + 1, out=x.clone()),
    "rand_like of a copy": lambda x: torch.rand_like(torch.empty(x.shape).copy_(x)),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "rows": lambda x: x[1:],
    "columns": lambda x: x[:, ::2],
    "transposed value": lambda x: (x * 1).t().contiguous().t(),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random(name: str, layout: str, check: Check) -> None:
    def program(x: Tensor) -> object:
        window = LAYOUTS[layout](x)
        drawn = RANDOM[name](window)
        return drawn if drawn is not window else None, x * 1, torch.rand(3), window * 1

    check(program, lambda: (numbers(8, 8),))


def test_order_of_random_operators(check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x.uniform_()
        a = torch.rand(3)
        y.normal_()
        x[0].bernoulli_(0.5)
        return a, torch.randn(2), x + y

    check(program, lambda: (numbers(4, 5), numbers(4, 5)), dynamo=True)


def test_random_numbers_that_nobody_reads_still_move_the_state(check: Check) -> None:
    def program(x: Tensor) -> object:
        torch.rand(5)
        x.uniform_()
        x.zero_()
        return torch.rand(2)

    check(program, lambda: (numbers(4, 5),))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(6, 4))

    def forward(self, x: Tensor) -> object:
        self.steps += 1
        y = F.dropout(F.relu_(self.norm(x)), 0.5, self.training, inplace=True)
        self.cache[:3].copy_(y[:3])
        self.cache.index_fill_(0, self.steps.view(1), 7)
        return y, self.cache.sum(), self.steps


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "dynamo"])
def test_module_with_buffers(training: bool, dynamo: bool, check: Check) -> None:
    check(Network().train(training), lambda: (numbers(5, 4),), dynamo=dynamo)


def test_writes_to_constants(check: Check) -> None:
    def program(x: Tensor) -> object:
        table = torch.tensor([1.0, 2.0, 3.0])
        before = table * 1
        table[1] = 5
        table.add_(x)
        return before, table, table[0]

    check(program, lambda: (numbers(3),))
    check(program, lambda: (numbers(3),), dynamo=True)
