"""Calls with `out=` tensors that have no elements, and grow."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Check = Callable[..., None]
Refused = Callable[..., None]


def numbers(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(*shape[-2:])


def fresh_output(x: Tensor) -> Tensor:
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    return out.mul_(2)


def fresh_output_beside_a_view_of_it(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.empty(0, 3)
    view = out[:, :2]
    torch.mm(x, x, out=out)
    return view + 1, out


def one_of_several(x: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    indices = torch.empty(0, dtype=torch.int64)
    torch.sort(x, out=(values, indices))
    return indices, values.add_(1)


def inside_of_an_operator(x: Tensor, out: Tensor) -> Tensor:
    return torch.linalg.det(x, out=out)


def written_through_a_view(x: Tensor, out: Tensor) -> Tensor:
    torch.linalg.inv(x, out=out[0])
    return out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("program", "inputs"),
    [
        (fresh_output, lambda: (numbers(3, 3),)),
        (fresh_output_beside_a_view_of_it, lambda: (numbers(3, 3),)),
        (one_of_several, lambda: (numbers(3, 3), torch.zeros(3, 3))),
        (inside_of_an_operator, lambda: (numbers(3, 3), torch.zeros(()))),
        (written_through_a_view, lambda: (numbers(3, 3), torch.zeros(2, 3, 3))),
    ],
)
def test_output_without_elements_grows(
    program: Callable[..., object], inputs: Callable[..., object], check: Check
) -> None:
    check(program, inputs, text=True)


@pytest.mark.filterwarnings("ignore")
def test_argument_that_grows_is_refused(refused: Refused) -> None:
    def program(x: Tensor, out: Tensor) -> Tensor:
        return torch.add(x, 1, out=out)

    refused(program, lambda: (numbers(3, 3), torch.empty(0)), match="resizing memory", eager_raises=False)
