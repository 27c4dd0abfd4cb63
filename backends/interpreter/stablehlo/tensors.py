"""Tensors of PyTorch as arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from vllm_ir.backends.interpreter.stablehlo.values import ELEMENTS, Array, Element
from vllm_ir.frontends.fx.types import known_dtype

_DTYPES: Mapping[Element, torch.dtype] = {element: known_dtype(kind) for kind, element in ELEMENTS.items()}
_ELEMENTS: Mapping[torch.dtype, Element] = {dtype: element for element, dtype in _DTYPES.items()}


def to_numpy(tensor: Tensor) -> Array:
    """The elements of a tensor on the CPU, perhaps in its memory.

    Raises:
        ValueError: numpy has no such elements.
    """
    if (element := _ELEMENTS.get(tensor.dtype)) is None:
        raise ValueError(f"tensors of {tensor.dtype} cannot be evaluated")
    # Bytes, since numpy and PyTorch do not know each other's narrow types.
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().view(element).reshape(tuple(tensor.shape))


def to_tensor(array: Array) -> Tensor:
    """A new tensor with the elements of an array."""
    flat = np.array(array, order="C").reshape(-1).view(np.uint8)
    made = torch.from_numpy(flat)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
    return made.view(_DTYPES[array.dtype]).reshape(array.shape)
