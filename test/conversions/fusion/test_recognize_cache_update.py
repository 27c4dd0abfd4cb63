"""The update of a static cache becomes `write_static_cache`, and is in place as before."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vllm_ir as ir


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    new, cache = (2, 3, 4, 8), (2, 3, 16, 8)
    return *(torch.randn(shape).to(dtype) for shape in (new, new, cache, cache)), torch.tensor([7, 3, 0, 15])


def update(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return keys.index_copy(2, positions, key), values.index_copy(2, positions, value)


def write(key: Tensor, value: Tensor, keys: Tensor, values: Tensor, positions: Tensor) -> Tensor:
    keys.index_copy_(2, positions, key)
    values.index_copy_(2, positions, value)
    return keys.sum() + values.sum()


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [update, write])
def test_keys_and_values(raised, function: Callable[..., object], dtype: torch.dtype, decompose: bool):
    assert raised(function, *inputs(dtype), decompose=decompose).fusions == {"recognize_cache_update": 1}


def test_the_cache_is_written_in_place():
    compiled = torch.compile(write, backend="vllm_ir_eager", options={"fusions": ["recognize_cache_update"]})
    there, expected = inputs(), inputs()
    for mine, other in zip(there, expected, strict=True):
        other.copy_(mine)
    assert torch.equal(compiled(*there), write(*expected))
    assert all(torch.equal(mine, other) for mine, other in zip(there, expected, strict=True))
    report = ir.compile_reports()[-1]
    assert report.fusions.keys() == {"recognize_cache_update"}
    assert not report.copies


def test_other_dimensions_and_other_positions_stay(raised):
    key, value, keys, values, positions = inputs()
    swapped = [t.transpose(1, 2) for t in (key, value, keys, values)]
    function = lambda key, value, keys, values, at: (keys.index_copy(1, at, key), values.index_copy(1, at, value))  # noqa: E731
    found = raised(function, *swapped, positions)
    assert found.fusions == {}
    assert "before does not take operands of these types" in found.reasons
    two = raised(
        lambda key, value, keys, values, at: (keys.index_copy(2, at, key), values.index_copy(2, at.flip(0), value)),
        *(key, value, keys, values, positions),
    )
    assert two.fusions == {}
