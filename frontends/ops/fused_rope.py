"""Rotary position embedding with what is done before and after it: norms of heads, and the write to a paged cache.

Each op is its parts one after the other, bit for bit. Caches and slots are those of `reshape_and_cache`.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.kv_cache import with_keys_and_values
from vllm_ir.frontends.ops.norms import normalized
from vllm_ir.frontends.ops.registry import register_op
from vllm_ir.frontends.ops.rope import rotated, table_of_angles


@register_op(activations=["qkv"])
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
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys of a projection, each head through `rms_norm` and then `rotary_embedding`; and its values.

    Args:
        qkv: floating, `[tokens..., (num_heads + 2 * num_kv_heads) * head_size]`: queries, keys, values.
        positions: integers, one for each token, in any shape.
        q_weight: `[head_size]`, of the norm of queries; None leaves the product out.
        k_weight: likewise, of keys.
        epsilon: added to the mean of the squares of a head.
        num_heads: heads of queries.
        num_kv_heads: heads of keys, and of values.
        head_size: elements of a head.
        cos_sin_cache: `[positions, rotary_dim]`; the first half of each row holds cosines, the second sines.
        is_neox: whether an element is paired with the one half a rotation away, rather than with its neighbour.
        rotary_dim: the number of columns of `cos_sin_cache`, or None.

    Returns:
        Queries `[tokens..., num_heads * head_size]`, keys and values `[tokens..., num_kv_heads * head_size]`, each in
        new memory. Queries and keys have the dtype that `qkv` and their weight promote to.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    op = "qk_norm_rope"
    query, key, value = normed_heads(op, qkv, q_weight, k_weight, epsilon, num_heads, num_kv_heads, head_size)
    turned = rotated(op, positions, query, key, head_size, cos_sin_cache, is_neox, rotary_dim)
    return *turned, value.clone(memory_format=torch.contiguous_format)


@register_op(activations=["query", "key", "key_cache", "value_cache"], allow_inplace=True)
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
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`rotary_embedding` of queries and keys, and `reshape_and_cache` of the rotated keys and the values.

    Args:
        positions: integers, one for each token.
        query: floating, `[tokens, heads * head_size]` or `[tokens, heads, head_size]`.
        key: likewise with `kv_heads`, in the dtype of `key_cache`.
        value: `[tokens, kv_heads * value_head_size]` or `[tokens, kv_heads, value_head_size]`, in the dtype of
            `value_cache`.
        key_cache: floating, `[blocks, block_size, kv_heads, head_size]`, of any strides.
        value_cache: `[blocks, block_size, kv_heads, value_head_size]`.
        slot_mapping: int64, `[tokens]`; less than `blocks * block_size`. A negative one writes nothing.
        head_size: elements of a head.
        cos_sin_cache: `[positions, rotary_dim]`; the first half of each row holds cosines, the second sines.
        is_neox: whether an element is paired with the one half a rotation away, rather than with its neighbour.
        rotary_dim: the number of columns of `cos_sin_cache`, or None.

    Returns:
        The rotated query and key, shaped like the arguments, and the new `key_cache` and `value_cache`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: there are not that many slots in the cache.
    """
    op = "rope_and_cache"
    turned = rotated(op, positions, query, key, head_size, cos_sin_cache, is_neox, rotary_dim)
    return *turned, *cached_heads(op, turned[1], value, key_cache, value_cache, slot_mapping)


@register_op(
    activations=["qkv", "key_cache", "value_cache"],
    allow_inplace=True,
    reuses=[None, None, None, "key_cache", "value_cache"],
)
def qk_norm_rope_and_cache(
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
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`qk_norm_rope`, and `reshape_and_cache` of its keys and values.

    Arguments are those of `qk_norm_rope`, with one dimension of tokens, and those of `rope_and_cache`.

    Returns:
        The results of `qk_norm_rope`, and the new `key_cache` and `value_cache`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: there are not that many slots in the cache.
    """
    op = "qk_norm_rope_and_cache"
    query, key, value = normed_heads(op, qkv, q_weight, k_weight, epsilon, num_heads, num_kv_heads, head_size)
    turned = rotated(op, positions, query, key, head_size, cos_sin_cache, is_neox, rotary_dim)
    caches = cached_heads(op, turned[1], value, key_cache, value_cache, slot_mapping)
    return *turned, value.clone(memory_format=torch.contiguous_format), *caches


def normed_heads(
    op: str,
    qkv: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    epsilon: float,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The three pieces of a projection, of which the heads of the first two are normalised; errors name `op`."""
    if num_heads < 1 or num_kv_heads < 1 or head_size < 1:
        raise ValueError(
            f"vllm_ir.{op}: num_heads, num_kv_heads and head_size must be positive, got {num_heads}, {num_kv_heads}, "
            f"{head_size}"
        )
    columns = (num_heads + 2 * num_kv_heads) * head_size
    if not qkv.is_floating_point() or qkv.dim() == 0 or qkv.shape[-1] != columns:
        raise ValueError(
            f"vllm_ir.{op}: qkv must be floating with a last dimension of {columns}, for {num_heads} heads of queries "
            f"and twice {num_kv_heads} of {head_size} elements, got {qkv.dtype} of shape {list(qkv.shape)}"
        )
    for name, weight in (("q_weight", q_weight), ("k_weight", k_weight)):
        if weight is not None and (weight.dim() != 1 or weight.shape[0] != head_size):
            raise ValueError(
                f"vllm_ir.{op}: {name} must have shape [{head_size}], like a head, got {list(weight.shape)}"
            )
    keys, values = num_heads * head_size, (num_heads + num_kv_heads) * head_size
    pieces = ((qkv[..., :keys], num_heads, q_weight), (qkv[..., keys:values], num_kv_heads, k_weight))
    query, key = (
        normalized(op, piece.view((*qkv.shape[:-1], heads, head_size)), weight, epsilon, None).flatten(-2)
        for piece, heads, weight in pieces
    )
    return query, key, qkv[..., values:]


def cached_heads(
    op: str, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> tuple[Tensor, Tensor]:
    """The caches with keys and values in them, whose rows may hold heads one behind the other; errors name `op`."""
    keys, values = _with_heads(key, key_cache), _with_heads(value, value_cache)
    return with_keys_and_values(op, keys, values, key_cache, value_cache, slot_mapping)


def _with_heads(rows: Tensor, cache: Tensor) -> Tensor:
    """`[tokens, heads * size]` with the heads of a cache; as it is where these do not fit, so that it is refused."""
    if rows.dim() != 2 or cache.dim() != 4 or cache.shape[2] < 1 or rows.shape[1] % cache.shape[2]:
        return rows
    return rows.reshape(rows.shape[0], cache.shape[2], rows.shape[1] // cache.shape[2])


@qk_norm_rope.register_input_generator
def generate_qk_norm_rope_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    is_neox: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `qk_norm_rope`."""
    qkv = torch.randn(num_tokens, (num_heads + 2 * num_kv_heads) * head_size).to(dtype)
    q_weight, k_weight = (torch.randn(head_size).to(dtype) for _ in range(2))
    table = table_of_angles(1024, head_size).to(dtype)
    positions = torch.randint(0, 1024, (num_tokens,))
    return qkv, positions, q_weight, k_weight, 1e-6, num_heads, num_kv_heads, head_size, table, is_neox


@rope_and_cache.register_input_generator
def generate_rope_and_cache_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    is_neox: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `rope_and_cache`, all slots different."""
    columns = (num_heads * head_size, num_kv_heads * head_size, num_kv_heads * head_size)
    pieces = [torch.randn(num_tokens, width).to(dtype) for width in columns]
    table = table_of_angles(1024, head_size).to(dtype)
    caches = _caches_and_slots(num_tokens, num_kv_heads, head_size, dtype)
    return torch.randint(0, 1024, (num_tokens,)), *pieces, *caches, head_size, table, is_neox


@qk_norm_rope_and_cache.register_input_generator
def generate_qk_norm_rope_and_cache_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    is_neox: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `qk_norm_rope_and_cache`, all slots different."""
    projected = generate_qk_norm_rope_inputs(num_tokens, num_heads, num_kv_heads, head_size, is_neox, dtype)
    return *projected, *_caches_and_slots(num_tokens, num_kv_heads, head_size, dtype)


def _caches_and_slots(
    num_tokens: int, num_kv_heads: int, head_size: int, dtype: torch.dtype, block_size: int = 16
) -> tuple[Tensor, ...]:
    blocks = max(8, -(-num_tokens // block_size))
    caches = [torch.randn(blocks, block_size, num_kv_heads, head_size).to(dtype) for _ in range(2)]
    return *caches, torch.randperm(blocks * block_size)[:num_tokens]
