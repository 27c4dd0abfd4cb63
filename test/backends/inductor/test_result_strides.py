"""Results that are parts of new tensors have the strides of eager mode, whatever Inductor does with the rest."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

PROGRAMS = {
    "columns": lambda b: (b * 2)[:, ::2],
    "first rows": lambda b: (b * 2).chunk(2, 0)[0],
    "rows of a copy": lambda b: b.clone().chunk(2, 0)[0],
    "rows between": lambda b: (b + b)[1:3],
    "rows of what is transposed": lambda b: (b + b).t()[1:3],
    "rows of memory in columns": lambda b: torch.empty_strided((4, 6), (1, 4)).copy_(b)[1:3],
}


def _other_part_written(b: Tensor) -> Tensor:
    first, second = (b + b).chunk(2, 0)
    torch._foreach_zero_([second, b * 1])
    return first


@pytest.mark.parametrize("program", [*PROGRAMS.values(), _other_part_written], ids=[*PROGRAMS, "other part written"])
@pytest.mark.parametrize("strides", [(1, 7), (6, 1)], ids=["in columns", "in rows"])
def test_strides(program, strides):
    torch._dynamo.reset()
    b = torch.arange(40.0).as_strided((4, 6), strides)
    compiled = torch.compile(program, backend="vllm_ir")
    for _ in range(2):  # what is wrong is found out in the first call, and put right in all
        result, eager = compiled(b), program(b)
        assert result.stride() == eager.stride()
        assert torch.equal(result, eager)
