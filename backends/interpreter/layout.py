"""Tensors laid out as their types state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from xdsl.ir import Attribute

from vllm_ir.backends.interpreter.sizes import Sizes
from vllm_ir.dialects.vllm_ir.types import contiguous_strides, strides_of


def stated_strides(kind: Attribute, shape: Sequence[int], sizes: Sizes) -> tuple[int, ...] | None:
    """The strides that a tensor or buffer type states for a shape, in elements; None if they are not known."""
    stated = strides_of(kind)
    if stated is None:
        return contiguous_strides(shape)
    steps = [sizes.value(step) for step in stated]
    return None if any(step is None for step in steps) else tuple(step for step in steps if step is not None)


def laid_out(value: Tensor, strides: Sequence[int]) -> Tensor:
    """New memory with the elements of `value` at the given strides, which may make elements share memory.

    Where they do, `value` has to have equal elements, as the windows that `expand` and `unfold` give have.
    """
    shape = tuple(value.shape)
    if value.numel() == 0:
        return torch.empty_strided(shape, tuple(strides), dtype=value.dtype, device=value.device)
    span = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    width = value.element_size()
    plain = value.resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
    elements = plain.view(torch.uint8).reshape(-1, width)
    memory = torch.zeros((span, width), dtype=torch.uint8, device=value.device)
    places = torch.arange(span, device=value.device).as_strided(shape, tuple(strides))
    memory[places.reshape(-1)] = elements
    return memory.reshape(-1).view(value.dtype).as_strided(shape, tuple(strides))


def fresh(value: Tensor, strides: Sequence[int] | None) -> Tensor:
    """A tensor of its own with the elements of `value`, at the given strides if they are known."""
    copy = value.detach().clone()
    if strides is None or copy.stride() == tuple(strides):
        return copy
    return laid_out(copy, strides)
