"""Operators that the lit tests of this folder call; loaded by `vllm-ir-opt --load`."""

import torch
from torch import Tensor


@torch.library.custom_op("functionalize_lit::bump", mutates_args=("x",))
def bump(x: Tensor, by: Tensor) -> Tensor:
    """Adds to its argument; the sum of all elements."""
    x.add_(by)
    return x.sum()
