"""Ops that are declared row-wise are: rows alone are the rows of the whole, whatever the other rows are."""

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.frontends.ops import IrOp, ops
from vllm_ir.frontends.ops.torch_library import as_results

ROW_WISE = [ops[name] for name in ops if ops[name].row_wise]


@pytest.mark.parametrize("op", ROW_WISE, ids=lambda op: op.name)
def test_rows_are_computed_apart(op: IrOp) -> None:
    torch.manual_seed(0)
    given = op.generate_inputs()
    rows = next(arg for arg in given if isinstance(arg, Tensor)).shape[0]
    whole = as_results(op.native(*given), op.result_count, op.name)
    flat = _with_activations(op, given, lambda x: x.reshape(2, rows // 2, *x.shape[1:]))
    cut = _with_activations(op, given, lambda x: x[1::3].clone())
    for one, part, higher in zip(
        whole,
        as_results(op.native(*cut), op.result_count, op.name),
        as_results(op.native(*flat), op.result_count, op.name),
        strict=True,
    ):
        assert one.shape[0] == rows
        assert _same(part, one[1::3])
        assert _same(higher.flatten(0, 1), one)


def _with_activations(op: IrOp, given: tuple[object, ...], change: object) -> tuple[object, ...]:
    assert callable(change)
    return tuple(change(arg) if i in op.activation_indices else arg for i, arg in enumerate(given))


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def test_the_norms_and_quantisations_are_declared() -> None:
    assert {"rms_norm", "fused_add_rms_norm", "dynamic_per_token_scaled_fp8_quant"} <= {op.name for op in ROW_WISE}


def test_row_wise_needs_activations() -> None:
    def no_rows(weight: Tensor) -> Tensor:
        return weight + 1

    with pytest.raises(ir.RegistrationError, match="row_wise needs activations; name them with"):
        ir.register_op(row_wise=True)(no_rows)
