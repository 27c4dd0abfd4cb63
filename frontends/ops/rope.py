"""Rotary position embedding.

The definition is a function of the op's name, which errors state, so that fused ops are defined by it too.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op


@register_op(activations=["query", "key"], allow_inplace=True)
def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Rotate the leading elements of every head of queries and keys by their token's position.

    The table is rounded to the dtype of what it rotates, and the arithmetic is in that dtype.

    Args:
        positions: integers, one for each token, in any shape.
        query: floating, `[tokens..., heads * head_size]` or `[tokens..., heads, head_size]`.
        key: likewise; the number of heads may differ.
        head_size: elements of a head.
        cos_sin_cache: `[positions, rotary_dim]`; the first half of each row holds cosines, the second sines.
        is_neox: whether an element is paired with the one half a rotation away (GPT-NeoX), rather than with its
            neighbour (GPT-J).
        rotary_dim: how many elements of a head turn; the rest stays. None: as many as `cos_sin_cache` has columns, and
            any other number is an error.

    Returns:
        The rotated query and key, shaped like the arguments.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    return rotated("rotary_embedding", positions, query, key, head_size, cos_sin_cache, is_neox, rotary_dim)


def rotated(
    op: str,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None,
) -> tuple[Tensor, Tensor]:
    """The definition of `rotary_embedding`; errors name `op`."""
    check_rotary(op, positions, query, key, head_size, cos_sin_cache, rotary_dim)
    rows = cos_sin_cache.index_select(0, positions.flatten())
    return rotated_by_rows(query, rows, head_size, is_neox), rotated_by_rows(key, rows, head_size, is_neox)


def rotated_by_rows(x: Tensor, rows: Tensor, head_size: int, is_neox: bool) -> Tensor:
    """Rotate the heads of `x`; `rows`, `[tokens, rotary_dim]`, are cosines and sines of its tokens, in order."""
    rotary_dim = rows.shape[-1]
    heads = x.reshape(rows.shape[0], -1, head_size)
    cos, sin = rows.unsqueeze(1).to(x.dtype).chunk(2, dim=-1)
    turning, resting = heads[..., :rotary_dim], heads[..., rotary_dim:]
    if is_neox:
        left, right = turning.chunk(2, dim=-1)
    else:
        left, right = turning[..., ::2], turning[..., 1::2]
    parts = (left * cos - right * sin, right * cos + left * sin)
    turned = torch.cat(parts, dim=-1) if is_neox else torch.stack(parts, dim=-1).flatten(-2)
    return torch.cat((turned, resting), dim=-1).reshape(x.shape)


def check_rotary(
    op: str,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    rotary_dim: int | None,
) -> None:
    """Refuse arguments of `rotary_embedding` that do not fit, but for how many positions there are; names `op`.

    Raises:
        ValueError: one does not fit.
    """
    if positions.is_floating_point() or positions.is_complex() or positions.dtype is torch.bool:
        raise ValueError(f"vllm_ir.{op}: positions must be integers, got {positions.dtype}")
    if cos_sin_cache.dim() != 2 or cos_sin_cache.shape[1] % 2 or cos_sin_cache.shape[1] > head_size:
        raise ValueError(
            f"vllm_ir.{op}: cos_sin_cache must have shape [positions, rotary_dim] with an even rotary_dim "
            f"of at most head_size {head_size}, got {list(cos_sin_cache.shape)}"
        )
    if rotary_dim is not None and rotary_dim != cos_sin_cache.shape[1]:
        raise ValueError(
            f"vllm_ir.{op}: rotary_dim {rotary_dim} is not the number of columns of cos_sin_cache, "
            f"{cos_sin_cache.shape[1]}"
        )
    for name, x in (("query", query), ("key", key)):
        if not x.is_floating_point() or x.dim() == 0 or x.shape[-1] % head_size:
            raise ValueError(
                f"vllm_ir.{op}: {name} must be floating and its last dimension a multiple of head_size "
                f"{head_size}, got {x.dtype} of shape {list(x.shape)}"
            )


def table_of_angles(rows: int, columns: int) -> Tensor:
    """The usual `cos_sin_cache`, `[rows, columns]` in float32: angles are 10000^(-2 i / columns) for each position."""
    angles = torch.arange(rows).unsqueeze(1) * 10000.0 ** (-torch.arange(0, columns, 2) / columns)
    return torch.cat((angles.cos(), angles.sin()), -1)


@rotary_embedding.register_input_generator
def generate_rotary_embedding_inputs(
    num_tokens: int = 32,
    hidden_size: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    head_size: int = 64,
    rotary_dim: int | None = None,
    is_neox: bool = True,
    max_position: int = 4096,
) -> tuple[object, ...]:
    """Random arguments of `rotary_embedding`: `hidden_size` columns of queries, one head of keys, a table of angles."""
    width = head_size if rotary_dim is None else rotary_dim
    table = table_of_angles(max_position, width).to(dtype)
    query, key = (torch.randn(num_tokens, columns).to(dtype) for columns in (hidden_size, head_size))
    return torch.randint(0, max_position, (num_tokens,)), query, key, head_size, table, is_neox, rotary_dim
