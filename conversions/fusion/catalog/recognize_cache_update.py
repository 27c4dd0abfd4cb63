"""The update of a static cache of keys and values becomes `write_static_cache`, which a kernel can do at once.

Such a cache is no paged one: a copy of it for each step would be the price of `reshape_and_cache` where no kernel
writes it in place.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops


def _copied(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """As in the `StaticCache` of `transformers`."""
    return key_cache.index_copy(2, positions, key), value_cache.index_copy(2, positions, value)


def _written(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    return ops.write_static_cache(key, value, key_cache, value_cache, positions)


def _examples() -> Iterator[tuple[object, ...]]:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        new, cache = (2, 3, 4, 8), (2, 3, 16, 8)
        yield *(torch.randn(shape).to(dtype) for shape in (new, new, cache, cache)), torch.tensor([5, 6, 7, 8])


FUSIONS = (Fusion("recognize_cache_update", _copied, _written, _examples),)
