"""Strides of values in an exported graph: put right where a program can see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx
from torch._prims_common import is_contiguous_or_false
from xdsl.ir import Attribute

from vllm_ir.dialects.vllm_ir.types import sizes_of, strides_of
from vllm_ir.frontends.fx.types import symbolic

aten = torch.ops.aten
Emit = Callable[..., fx.Node]


def tensor_of(node: fx.Node) -> Tensor:
    """What `node` gives."""
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        raise TypeError(f"{node} is not a tensor")
    return value


def has_strides(value: Tensor, kind: Attribute) -> bool:
    """Whether `value` is laid out as `kind` states; strides of dimensions of size 1, and of empty tensors, are free."""
    wanted = strides_of(kind)
    if wanted is None:
        return is_contiguous_or_false(value)
    if any(symbolic(size) == 0 for size in value.shape):
        return True
    return all(
        size == 1 or symbolic(stride) == step
        for size, stride, step in zip(sizes_of(kind), value.stride(), wanted, strict=True)
    )


def with_strides(emit: Emit, node: fx.Node, kind: Attribute) -> fx.Node:
    """A node with the value of `node` and the strides of `kind`."""
    if has_strides(tensor_of(node), kind):
        return node
    wanted = strides_of(kind)
    if wanted is None or any(isinstance(step, str) for step in wanted):
        return emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
    steps = [step for step in wanted if isinstance(step, int)]
    sizes = [size for size in sizes_of(kind) if isinstance(size, int)]
    order = sorted(range(len(steps)), key=lambda dimension: (-steps[dimension], dimension))
    if len(sizes) == len(steps) and _is_dense(sizes, steps, order):
        inverse = [order.index(dimension) for dimension in range(len(order))]
        ordered = emit(aten.permute.default, (node, order))
        dense = emit(aten.clone.default, (ordered,), {"memory_format": torch.contiguous_format})
        return emit(aten.permute.default, (dense, inverse))
    value = tensor_of(node)
    span = 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    memory = emit(aten.full.default, ([span], 0), {"dtype": value.dtype, "device": value.device, "pin_memory": False})
    if 0 in steps:
        return emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
    filled = emit(aten.as_strided_scatter.default, (memory, node, sizes, steps, 0))
    return emit(aten.as_strided.default, (filled, sizes, steps, 0))


def _is_dense(sizes: Sequence[int], steps: Sequence[int], order: Sequence[int]) -> bool:
    step = 1
    for dimension in reversed(order):
        if sizes[dimension] != 1 and steps[dimension] != step:
            return False
        step *= sizes[dimension]
    return True
