"""Questions about layouts that kernels for accelerators depend on, and what makes up for an unlucky address.

Sizes may be symbolic; what is not known to hold for all of them is taken not to hold.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from vllm_ir.frontends.ops.predicates import statically_known as known

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
"""The dtypes that such kernels are compiled for; float64 stays native."""

VECTOR_BYTES = 16
"""What kernels load at once, from an address that is a multiple of it."""


def is_contiguous(tensor: Tensor, first: int = 0) -> bool:
    """Whether elements lie in the order of their indices, without gaps, along the dimensions from `first` on."""
    expected = 1
    for size, stride in reversed(list(zip(tensor.shape[first:], tensor.stride()[first:], strict=True))):
        if not known(size == 1) and not known(stride == expected):
            return False
        expected = expected * size
    return True


def has_elements(*tensors: Tensor) -> bool:
    """Whether there is anything to do for all of them: a grid without blocks is an error on devices."""
    return all(known(size > 0) for tensor in tensors for size in tensor.shape)


def has_even_rows(tensor: Tensor) -> bool:
    """Whether dense rows lie one behind the other at one distance, which is all that a kernel is told."""
    if tensor.dim() == 2 and known(tensor.stride(1) == 1) and known(tensor.stride(0) >= tensor.shape[1]):
        return True
    return tensor.dim() >= 2 and is_contiguous(tensor)


def is_row_major(tensor: Tensor) -> bool:
    """Whether rows are dense, do not overlap, and come in the order of their indices, be there gaps between them.

    Elementwise arithmetic gives contiguous results for such a tensor.
    """
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    moving = [(size, stride) for size, stride in sizes if not known(size == 1)]
    # The product is what symbolic strides are made of; of itself it is not known to be as much as its factor.
    return (not moving or known(moving[-1][1] == 1)) and all(
        known(stride >= size * next_stride) or known(stride == size * next_stride)
        for (_, stride), (size, next_stride) in pairwise(moving)
    )


def strides_are_aligned(tensor: Tensor) -> bool:
    """Whether each row begins at a multiple of `VECTOR_BYTES`, provided that the tensor does."""
    width = VECTOR_BYTES // tensor.element_size()
    outer = zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    return all(known(size == 1) or known(stride % width == 0) for size, stride in outer)


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where it is a window that does not begin at a multiple of `VECTOR_BYTES`.

    Allocators give memory at such multiples. Where a window begins is no fact that `supports_args` may look at, and one
    that compiled graphs do not know of their inputs: those are passed on as they are.
    """
    if torch.compiler.is_compiling():
        return tensor
    width = VECTOR_BYTES // tensor.element_size()
    return tensor if known(tensor.storage_offset() % width == 0) else tensor.clone()


def fits_rows(weight: Tensor, x: Tensor) -> bool:
    """Whether a weight has the dtype of `x` and one element for each of a row, without gaps."""
    return weight.dtype == x.dtype and same_shape(weight.shape, x.shape[-1:]) and is_contiguous(weight)


def half_rows(x: Tensor) -> Tensor:
    """An uninitialised result whose rows have half as many elements: that of a gated activation."""
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def same_shape(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two shapes, or strides, are equal."""
    return len(left) == len(right) and all(known(a == b) for a, b in zip(left, right, strict=True))


__all__ = [
    "FLOATS",
    "VECTOR_BYTES",
    "aligned",
    "fits_rows",
    "half_rows",
    "has_elements",
    "has_even_rows",
    "is_contiguous",
    "is_row_major",
    "known",
    "same_shape",
    "strides_are_aligned",
]
