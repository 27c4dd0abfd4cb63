"""Whether rows have the same bits alone as among others."""

from collections.abc import Iterator

import torch
from torch import Tensor

from vllm_ir.frontends.ops import IrOpImpl
from vllm_ir.frontends.ops.torch_library import as_results
from vllm_ir.tools.testing.cases import Case


def batch_faults(impl: IrOpImpl, case: Case) -> Iterator[str]:
    """Compare each row, and a few together, with what they are in the whole batch, bit for bit.

    The rows are those of the first activation, or of the first tensor; arguments and results with as many rows have one
    for each, the others belong to all.
    """
    op = impl.op
    names = op.activations or op.parameters
    tensors = [arg for name, arg in zip(op.parameters, case.args, strict=True) if name in names]
    batch = next((arg for arg in tensors if isinstance(arg, Tensor) and arg.dim() >= 2), None)
    if batch is None or batch.shape[0] < 2:
        return
    count = batch.shape[0]
    whole = as_results(impl.impl_fn(*case.copies()), op.result_count, "it")
    for rows in (slice(0, 1), slice(count - 1, count), slice(1, count)):
        part = Case(case.name, tuple(_rows(arg, rows, count) for arg in case.args))
        if impl.rejection(part.copies()) is not None:
            continue
        results = as_results(impl.impl_fn(*part.copies()), op.result_count, "it")
        for index, (result, all_rows) in enumerate(zip(results, whole, strict=True)):
            wanted = _rows(all_rows, rows, count)
            assert isinstance(wanted, Tensor)
            if not torch.equal(_bits(result), _bits(wanted)):
                yield (
                    f"batch_invariant: rows {rows.start} to {rows.stop - 1} of result {index} have other bits without "
                    f"the other rows of {count}"
                )
                return


def _rows(arg: object, rows: slice, count: int) -> object:
    return arg[rows] if isinstance(arg, Tensor) and arg.dim() >= 2 and arg.shape[0] == count else arg


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)
