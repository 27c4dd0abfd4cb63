"""Attention to keys and values in a paged cache.

The arithmetic is float32 whatever the dtypes, float64 included, and only the result is rounded.

The definition is a function of the op's name, which errors state, so that fused ops are defined by it too.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op

_INTEGERS = (torch.int32, torch.int64)


@register_op
def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    scale: float,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    """Causal attention of the last tokens of several sequences to all tokens of their sequence.

    Key `j` of a sequence is at offset `j % block_size` of its block `j // block_size`. Of a sequence with `n` tokens,
    `m` of them in `query`, the query token `i` sees the keys `0` to `n - m + i`. Heads of queries come in groups, as
    many as there are heads of keys: head `h` attends with the head `h // (heads // kv_heads)`. A token that sees no key
    gets zeros: one behind the last sequence, or of a sequence that has fewer tokens in the cache than in `query`.

    Args:
        query: floating, `[tokens, heads, head_size]`; the sequences' tokens one sequence after another.
        key_cache: floating, `[blocks, block_size, kv_heads, head_size]`.
        value_cache: likewise. What lies within the sequences' lengths must be finite.
        block_table: int32 or int64, `[sequences, max_blocks]`; in [0, blocks). Entries behind a sequence's last block
            are not used, and may be any numbers.
        seq_lens: int32 or int64, `[sequences]`: tokens of each sequence in the cache, those of `query` included; at
            most `max_blocks * block_size`.
        query_start: int32 or int64, `[sequences + 1]`, from 0 on and not decreasing: where each sequence's tokens begin
            in `query`, and where the last one's end.
        scale: factor of the products of queries and keys.
        sliding_window: a token sees no more than that many keys, the last ones. None: all.
        soft_cap: scores become `soft_cap * tanh(score / soft_cap)`. None: they stay.

    Returns:
        `[tokens, heads, head_size]`, contiguous, in the dtype of `query`.

    Raises:
        ValueError: an argument's dtype or shape does not fit, or `sliding_window` or `soft_cap` is not positive.
        IndexError: there are not that many blocks in the cache.
    """
    return attended(
        "paged_attention",
        query,
        key_cache,
        value_cache,
        block_table,
        seq_lens,
        query_start,
        scale,
        sliding_window,
        soft_cap,
    )


def attended(
    op: str,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    scale: float,
    sliding_window: int | None,
    soft_cap: float | None,
) -> Tensor:
    """The definition of `paged_attention`; errors name `op`."""
    _check_query(op, query, key_cache, value_cache)
    _check_places(op, block_table, seq_lens, query_start)
    _check_options(op, sliding_window, soft_cap)
    tokens, heads, head_size = query.shape
    block_size, kv_heads = key_cache.shape[1:3]
    starts, ends, lengths = query_start[:-1].long(), query_start[1:].long(), seq_lens.long()
    offsets = torch.arange(block_table.shape[1] * block_size, device=query.device)
    cached = offsets < lengths[:, None]  # [sequences, keys of one]
    blocks = torch.where(cached[:, ::block_size], block_table.long(), 0)
    # Every token is compared with the keys of all sequences, and sees those of its own.
    keys = key_cache[blocks].flatten(0, 2).float()
    # What a place holds that was never written may be no number, which times 0 is no number either.
    values = value_cache[blocks].flatten(0, 2).float().where(cached.flatten()[:, None, None], 0.0)
    places = torch.arange(tokens, device=query.device)[:, None, None]
    last = (lengths - ends)[:, None] + places  # [tokens, sequences, 1]: the last key that the token would see
    seen = (starts[:, None] <= places) & (places < ends[:, None]) & cached & (offsets <= last)
    if sliding_window is not None:
        seen = seen & (offsets > last - sliding_window)
    grouped = query.float().reshape(tokens, kv_heads, heads // kv_heads, head_size).transpose(0, 1)
    scores = grouped.flatten(1, 2) @ keys.permute(1, 2, 0) * scale
    if soft_cap is not None:
        scores = torch.tanh(scores / soft_cap) * soft_cap
    # [tokens, 1, all keys], repeated for the heads of a group.
    hidden = ~seen.flatten(1)[:, None]
    scores = scores.view(kv_heads, tokens, heads // kv_heads, keys.shape[0]).masked_fill(hidden, -torch.inf)
    # A row of -inf alone has no softmax; its weights are 0.
    weights = scores.softmax(-1).masked_fill(hidden, 0.0)
    mixed = weights.flatten(1, 2) @ values.transpose(0, 1)
    mixed = mixed.view(kv_heads, tokens, heads // kv_heads, head_size).transpose(0, 1)
    mixed = mixed.to(query.dtype, copy=True, memory_format=torch.contiguous_format)
    return mixed.view(tokens, heads, head_size)


@paged_attention.register_input_generator
def generate_paged_attention_inputs(
    num_tokens: int = 16,
    num_sequences: int = 4,
    context: int = 32,
    block_size: int = 16,
    num_heads: int = 8,
    num_kv_heads: int = 2,
    head_size: int = 64,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments: each sequence has up to `context` tokens in the cache before those of `query`."""
    num_sequences = max(1, min(num_sequences, num_tokens))
    cuts = torch.randperm(max(num_tokens - 1, 0))[: num_sequences - 1].sort().values + 1
    query_start = torch.cat((torch.tensor([0]), cuts, torch.tensor([num_tokens]))).int()
    seq_lens = query_start.diff() + torch.randint(0, context + 1, (num_sequences,), dtype=torch.int32)
    max_blocks = max(1, -(-(num_tokens + context) // block_size))
    num_blocks = num_sequences * max_blocks
    query = torch.randn(num_tokens, num_heads, head_size).to(dtype)
    caches = [torch.randn(num_blocks, block_size, num_kv_heads, head_size).to(dtype) for _ in range(2)]
    block_table = torch.randperm(num_blocks).reshape(num_sequences, max_blocks).int()
    return (query, *caches, block_table, seq_lens, query_start, head_size**-0.5)


def _check_query(op: str, query: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
    if not query.is_floating_point() or query.dim() != 3:
        raise ValueError(
            f"vllm_ir.{op}: query must be floating of shape [tokens, heads, head_size], got "
            f"{query.dtype} of shape {list(query.shape)}"
        )
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        if not cache.is_floating_point() or cache.dim() != 4 or cache.shape[3] != query.shape[2]:
            raise ValueError(
                f"vllm_ir.{op}: {name} must be floating of shape [blocks, block_size, kv_heads, "
                f"{query.shape[2]}], with the head_size of query, got {cache.dtype} of shape {list(cache.shape)}"
            )
    if key_cache.shape != value_cache.shape:
        raise ValueError(
            f"vllm_ir.{op}: key_cache and value_cache must have one shape, got "
            f"{list(key_cache.shape)} and {list(value_cache.shape)}"
        )
    if key_cache.shape[1] < 1 or key_cache.shape[2] < 1 or query.shape[1] % key_cache.shape[2]:
        raise ValueError(
            f"vllm_ir.{op}: the heads of query must be a multiple of kv_heads, and block_size positive, got "
            f"{query.shape[1]} heads and a cache of shape {list(key_cache.shape)}"
        )


def _check_places(op: str, block_table: Tensor, seq_lens: Tensor, query_start: Tensor) -> None:
    given = (("block_table", block_table, 2), ("seq_lens", seq_lens, 1), ("query_start", query_start, 1))
    for name, numbers, rank in given:
        if numbers.dtype not in _INTEGERS or numbers.dim() != rank:
            raise ValueError(
                f"vllm_ir.{op}: {name} must be int32 or int64 with {rank} dimension{'s' * (rank > 1)}, got "
                f"{numbers.dtype} of shape {list(numbers.shape)}"
            )
    sequences = seq_lens.shape[0]
    if block_table.shape[0] != sequences or query_start.shape[0] != sequences + 1:
        raise ValueError(
            f"vllm_ir.{op}: for the {sequences} sequences of seq_lens, block_table must have {sequences} "
            f"rows and query_start {sequences + 1} elements, got shapes {list(block_table.shape)} and "
            f"{list(query_start.shape)}"
        )


def _check_options(op: str, sliding_window: int | None, soft_cap: float | None) -> None:
    if sliding_window is not None and sliding_window < 1:
        raise ValueError(f"vllm_ir.{op}: sliding_window must be positive, got {sliding_window}")
    if soft_cap is not None and not soft_cap > 0:
        raise ValueError(f"vllm_ir.{op}: soft_cap must be positive, got {soft_cap}")
