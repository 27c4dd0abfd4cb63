"""Questions about tensors, real or fake, that the provider's conditions are made of.

Sizes may be symbolic. A comparison of those is answered only where the answer holds for every size that the graph is
compiled for, since asking further would tie the user's graph to the sizes at hand.
"""

from itertools import pairwise

import torch
from torch import Tensor

from vllm_ir.frontends.ops.predicates import statically_known as known


def is_dense(tensor: Tensor) -> bool:
    """Whether it is an ordinary strided tensor in main memory."""
    return tensor.device.type == "cpu" and tensor.layout is torch.strided


def has_dense_rows(tensor: Tensor) -> bool:
    """Whether the elements of the last dimension, which there is, are neighbours, wherever rows lie."""
    return known(tensor.shape[-1] <= 1) or known(tensor.stride(-1) == 1)


def is_row_major(tensor: Tensor) -> bool:
    """Whether each row is dense, and rows come in the order of their indices, be there gaps, or repetitions (`expand`).

    Of such a tensor, copies and the results of elementwise arithmetic are contiguous.
    """
    if tensor.dim() == 0:
        return True
    *outer, (last_size, last_stride) = zip(tensor.shape, tensor.stride(), strict=True)
    if not known(last_size <= 1) and not known(last_stride == 1):
        return False
    moving = [(size, stride) for size, stride in outer if not known(size == 1) and not known(stride == 0)]
    return all(
        # The product is what symbolic strides are made of; of itself it is not known to be more than its factor.
        known(stride >= next_stride) or known(stride == next_size * next_stride)
        for (_, stride), (next_size, next_stride) in pairwise([*moving, (last_size, 1)])
    )


__all__ = ["has_dense_rows", "is_dense", "is_row_major", "known"]
