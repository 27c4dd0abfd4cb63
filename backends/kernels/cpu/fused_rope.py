"""Provider `cpu` of rotary embedding with the norms before it, or with the write to the cache behind it.

The kernels give the bits of those of the parts, one after the other, and read and write a token's heads once.
"""

import torch
from torch import SymInt, Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.kv_cache import takes_reshape_and_cache
from vllm_ir.backends.kernels.cpu.layouts import is_dense, known
from vllm_ir.backends.kernels.cpu.library import call, define, in_place_fake
from vllm_ir.backends.kernels.cpu.providers import DTYPES, PROVIDER, SUPPORTED, takes_rotary_embedding, takes_rows
from vllm_ir.frontends.ops import ops


def _qk_norm_rope_fake(
    qkv: Tensor,
    _positions: Tensor,
    _q_weight: Tensor | None,
    _k_weight: Tensor | None,
    _epsilon: float,
    num_heads: int | SymInt,
    num_kv_heads: int | SymInt,
    head_size: int | SymInt,
    _cos_sin_cache: Tensor,
    _is_neox: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    def piece(heads: int | SymInt) -> Tensor:
        return qkv.new_empty((*qkv.shape[:-1], heads * head_size))

    return piece(num_heads), piece(num_kv_heads), piece(num_kv_heads)


QK_NORM_ROPE = define(
    "qk_norm_rope(Tensor qkv, Tensor positions, Tensor? q_weight, Tensor? k_weight, float epsilon, SymInt num_heads, "
    "SymInt num_kv_heads, SymInt head_size, Tensor cos_sin_cache, bool is_neox) -> (Tensor, Tensor, Tensor)",
    _qk_norm_rope_fake,
)
ROPE_AND_CACHE_ = define(
    "rope_and_cache_(Tensor positions, Tensor(a!) query, Tensor(b!) key, Tensor value, Tensor(c!) key_cache, "
    "Tensor(d!) value_cache, Tensor slot_mapping, SymInt head_size, Tensor cos_sin_cache, bool is_neox) -> ()",
    in_place_fake,
)


def takes_qk_norm_rope(
    qkv: Tensor,
    positions: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    _epsilon: float,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None,
) -> bool:
    """Whether the kernel takes these arguments."""
    if not takes_rows(qkv) or not all(known(number > 0) for number in (num_heads, num_kv_heads, head_size)):
        return False
    if not known(qkv.shape[-1] == (num_heads + 2 * num_kv_heads) * head_size):
        return False
    if not takes_rotary_embedding(positions, qkv, qkv, head_size, cos_sin_cache, is_neox, rotary_dim):
        return False
    # Rows are tokens: positions of several dimensions may come with rows of one, but not with other numbers of them.
    return known(qkv.numel() == positions.numel() * qkv.shape[-1]) and all(
        # One that promotes its heads is refused: these would not have the dtype of the values.
        weight is None
        or (
            is_dense(weight)
            and weight.dtype in DTYPES
            and torch.promote_types(qkv.dtype, weight.dtype) == qkv.dtype
            and weight.dim() == 1
            and known(weight.shape[0] == head_size)
        )
        for weight in (q_weight, k_weight)
    )


@ops.qk_norm_rope.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=takes_qk_norm_rope
)
def qk_norm_rope(
    qkv: Tensor,
    positions: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    epsilon: float,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None = None,  # noqa: ARG001  # always the table's width, as checked above
) -> tuple[Tensor, Tensor, Tensor]:
    """`qk_norm_rope` into new tensors."""
    heads = (num_heads, num_kv_heads, head_size)
    query, key, value = call(QK_NORM_ROPE, qkv, positions, q_weight, k_weight, epsilon, *heads, cos_sin_cache, is_neox)
    return query, key, value


def _with_heads(rows: Tensor, cache: Tensor) -> Tensor:
    """`[tokens, heads * size]` with the heads of a cache, where these fit."""
    if rows.dim() != 2 or cache.dim() != 4 or not known(cache.shape[2] > 0):
        return rows
    if not known(rows.shape[1] % cache.shape[2] == 0):
        return rows
    return rows.view((rows.shape[0], cache.shape[2], rows.shape[1] // cache.shape[2]))


def _takes_rope_and_cache(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None,
) -> bool:
    return (
        query.dtype == key.dtype
        and value.dtype in DTYPES
        and takes_rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox, rotary_dim)
        and known(positions.numel() == slot_mapping.numel())
        and takes_reshape_and_cache(
            _with_heads(key, key_cache), _with_heads(value, value_cache), key_cache, value_cache, slot_mapping
        )
    )


@ops.rope_and_cache.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_rope_and_cache, inplace=True
)
def rope_and_cache(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None = None,  # noqa: ARG001  # always the table's width, as checked above
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`rope_and_cache` in place of `query`, `key` and the caches."""
    caches = (key_cache, value_cache)
    ROPE_AND_CACHE_(positions, query, key, value, *caches, slot_mapping, head_size, cos_sin_cache, is_neox)
    return query, key, key_cache, value_cache
