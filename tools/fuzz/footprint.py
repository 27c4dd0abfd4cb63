"""Which bytes of memory a tensor's elements are, exactly; generated tensors are small."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Addresses: TypeAlias = NDArray[np.int64]


def element_addresses(tensor: Tensor) -> Addresses:
    """The address of each element, in row-major order."""
    addresses = np.zeros(1, dtype=np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        steps = np.arange(size, dtype=np.int64) * stride
        addresses = (addresses[:, None] + steps).reshape(-1)
    return tensor.data_ptr() + addresses * tensor.element_size()


def byte_addresses(tensor: Tensor) -> Addresses:
    """The addresses of all bytes, each as often as it is an element's."""
    return (element_addresses(tensor)[:, None] + np.arange(tensor.element_size())).reshape(-1)


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two elements are the same memory."""
    addresses = element_addresses(tensor)
    return len(np.unique(addresses)) != len(addresses)


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements are all of the memory from the first to the last, each once."""
    return bool((np.diff(np.sort(element_addresses(tensor))) == tensor.element_size()).all())


def overlap(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors have a byte in common."""
    if left.untyped_storage().data_ptr() != right.untyped_storage().data_ptr():
        return False
    return bool(np.intersect1d(byte_addresses(left), byte_addresses(right)).size)


def same_window(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are the same elements in the same order."""
    return (
        left.data_ptr() == right.data_ptr()
        and left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
    )
