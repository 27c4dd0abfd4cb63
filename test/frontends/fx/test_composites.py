"""Composite operators write their outputs while they are traced, and outside of traces are as they were."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import vllm_ir as ir


def _rank(x: Tensor, out: Tensor) -> Tensor:
    torch.linalg.matrix_rank(x, out=out)
    return out + 1


def _rank_into_part(x: Tensor, out: Tensor) -> Tensor:
    return torch.linalg.matrix_rank(x, atol=0.5, out=out[1])


@pytest.mark.parametrize("program", [_rank, _rank_into_part])
def test_output_of_composite_is_written(program):
    x = torch.eye(4)[:3].repeat(2, 1, 1)
    out = torch.full((2,) if program is _rank else (3, 2), 7)
    expected_out = out.clone()
    expected = program(x, expected_out)
    got = ir.export_fx(ir.run_passes(ir.import_callable(program, x, out), "functionalize,lower,eliminate-clones"))(
        x, out
    )
    assert torch.equal(got, expected)
    assert torch.equal(out, expected_out)


def test_output_of_another_size_is_refused():
    x, out = torch.eye(4), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(Exception, match=r"resiz|size"):
        ir.import_callable(_rank, x, out)


def test_outside_of_traces_nothing_changes():
    ir.import_callable(_rank, torch.eye(4), torch.tensor(0))
    out = torch.tensor(0)
    assert torch.linalg.matrix_rank(torch.eye(4), out=out) is out
    assert out.item() == 4
