"""Rotary position embedding that is spelled out in PyTorch operators becomes `apply_rotary`.

Cosines and sines are whatever the model computes: one for each element, as most models in `transformers` have them,
or one for each pair. The products are the same either way, since a negation rounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.catalog.spellings import by_dtype
from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops

Split: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]


def _slices(x: Tensor) -> tuple[Tensor, Tensor]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _chunks(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x.chunk(2, dim=-1)
    return first, second


def _every_second(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., ::2], x[..., 1::2]


def _rows_of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return first, second


_HALVES: tuple[Split, ...] = (_slices, _chunks)
_NEIGHBOURS: tuple[Split, ...] = (_every_second, _rows_of_two)


def _by_element(x: Tensor, cos: Tensor, sin: Tensor, split: Split) -> Tensor:
    """As `rotate_half` and `rotate_every_two` are used: Llama and GPT-J."""
    first, second = split(x)
    return x * cos + _joined(-second, first, split) * sin


def _by_pair(x: Tensor, cos: Tensor, sin: Tensor, split: Split) -> Tensor:
    first, second = split(x)
    return _joined(first * cos - second * sin, second * cos + first * sin, split)


def _joined(first: Tensor, second: Tensor, split: Split) -> Tensor:
    if split in _HALVES:
        return torch.cat((first, second), dim=-1)
    return torch.stack((first, second), dim=-1).flatten(-2)


def _rotary(x: Tensor, cos: Tensor, sin: Tensor, split: Split) -> Tensor:
    return ops.apply_rotary(x, cos, sin, split in _HALVES)


def _examples(columns: int) -> Iterator[tuple[object, ...]]:
    for dtype, split in by_dtype((*_HALVES, *_NEIGHBOURS)):
        yield *_tensors(dtype, dtype, columns), split
    yield *_tensors(torch.bfloat16, torch.float32, columns), _slices


def _tensors(dtype: torch.dtype, table: torch.dtype, columns: int) -> Iterator[Tensor]:
    yield torch.randn(2, 3, 5, 16).to(dtype)
    for _ in range(2):
        yield torch.rand(2, 1, 5, columns).to(table)


def _examples_by_element() -> Iterator[tuple[object, ...]]:
    yield from _examples(16)


def _examples_by_pair() -> Iterator[tuple[object, ...]]:
    yield from _examples(8)


FUSIONS = (
    Fusion("recognize_rotary", _by_element, _rotary, _examples_by_element),
    Fusion("recognize_rotary_by_pair", _by_pair, _rotary, _examples_by_pair),
)
