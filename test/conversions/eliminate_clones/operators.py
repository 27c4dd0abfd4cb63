"""Operators that the lit tests of this folder call; loaded by `vllm-ir-opt --load`."""

import torch
from torch import Tensor


@torch.library.custom_op("eliminate_lit::bump", mutates_args=("x",), tags=(torch.Tag.flexible_layout,))
def bump(x: Tensor, by: Tensor) -> Tensor:
    """Adds to its argument; the sum of all elements."""
    x.add_(by)
    return x.sum()


@torch.library.custom_op("eliminate_lit::rotate", mutates_args=("q", "k"), tags=(torch.Tag.flexible_layout,))
def rotate(q: Tensor, k: Tensor, by: Tensor) -> None:
    """Writes two operands."""
    q.add_(by)
    k.sub_(by)


@torch.library.custom_op("eliminate_lit::strict", mutates_args=("x",))
def strict(x: Tensor) -> None:
    """Writes its operand, which must have the strides that it was compiled for."""
    x.add_(1)
