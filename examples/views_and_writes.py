"""A step that writes memory in most ways in which models do, for `vllm-ir-opt examples/views_and_writes.py:step`.

Each part writes through another kind of view and reads back through one more, so that a compiler which forgets a write,
a view or a copy shows it in the results.
"""

from __future__ import annotations

import torch
from torch import Tensor

import vllm_ir as ir


@torch.library.custom_op("views_and_writes::rotate_pair", mutates_args=("x", "y"))
def rotate_pair(x: Tensor, y: Tensor, by: float) -> Tensor:
    """Write two tensors; gives the first as it was."""
    before = x.clone()
    x.mul_(by).sub_(y)
    y.add_(before)
    return before


@rotate_pair.register_fake
def _(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)


def step(cache: Tensor, state: Tensor, grid: Tensor, x: Tensor, other: Tensor, shared: Tensor, same: Tensor) -> object:
    """Results of all parts; the first three arguments, and the memory of the last two, are written."""
    # Transposed, diagonal, strided and split windows.
    cache.permute(1, 2, 0)[1].add_(x[:3, :2])
    grid.diagonal(1).mul_(2)
    first, second = grid.split([1, 3])
    second[0].copy_(first[0] + 1)
    grid.as_strided((2, 2), (5, 2), 1).add_(10)
    state[1].as_strided((2, 2), (1, 2), 5).sub_(1)
    # A window that is read, then written through its base, then read again.
    row = state[1]
    before = row * 1
    state.add_(1)
    after = row * before
    # New memory that is written, through a window of it, while an older value is still needed.
    fresh = torch.zeros(4, 4)
    older = fresh + 0
    fresh[1:3].copy_(x[:2])
    middle = fresh * 2
    kept = fresh[2:].clone()
    fresh[1:3].copy_(older[:2] - middle[1:3])
    changed = fresh[2:] - kept
    wide = x[:1].expand(4, 4)
    filled = torch.cat([wide, fresh]).index_put_((torch.tensor([0, 5]),), x[:2])
    # An operator that writes two operands, and one that takes its operands away.
    gone = torch.tanh(other)
    rotated = rotate_pair(grid[0], state[0], 0.5)
    normed, summed = ir.ops.fused_add_rms_norm.maybe_inplace(gone * 1, x * 1, None, 1e-5)
    # Two arguments in one memory.
    same[0].sub_(shared[0])
    shared[1].add_(same[1])
    total = same.sum() + shared[1, 0]
    cache[0].copy_(cache[1] - cache[0])
    return after, middle, fresh, changed, filled, rotated, normed, summed, total, row, cache.transpose(0, 1)


def example_inputs() -> tuple[Tensor, ...]:
    """Tensors of which the last two overlap."""
    memory = torch.randn(4, 4)
    sizes = ((2, 3, 3), (3, 4), (4, 4), (4, 4), (4, 4))
    return *(torch.randn(size) for size in sizes), memory[:3], memory[1:]
