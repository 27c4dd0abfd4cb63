"""Multi-head latent attention (MLA): what is done to the pieces of its projections, each op its parts bit for bit."""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.kv_cache import with_latents
from vllm_ir.frontends.ops.norms import normalized
from vllm_ir.frontends.ops.quantization import per_group_fp8, per_token_fp8
from vllm_ir.frontends.ops.registry import register_op
from vllm_ir.frontends.ops.rope import rotated, table_of_angles


@register_op(activations=["q_pe", "k_pe", "kv_cache"], allow_inplace=True)
def mla_rope_and_cache(
    positions: Tensor,
    q_pe: Tensor,
    k_pe: Tensor,
    kv_c: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    cos_sin_cache: Tensor,
    is_neox: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """`rotary_embedding` of the parts that rotate, and `concat_and_cache_mla` of latents and rotated keys.

    Args:
        positions: integers, one for each token.
        q_pe: the part of the queries that rotates, floating, `[tokens, heads, rope_size]`.
        k_pe: that of the keys, one head for all queries, `[tokens, rope_size]`, in the dtype of `kv_cache`.
        kv_c: latents that keys and values are made of, `[tokens, latent_size]`, in the dtype of `kv_cache`.
        kv_cache: floating, `[blocks, block_size, latent_size + rope_size]`, of any strides.
        slot_mapping: int64, `[tokens]`; less than `blocks * block_size`. A negative one writes nothing.
        cos_sin_cache: `[positions, rotary_dim]`, with an even `rotary_dim` of at most `rope_size`; the first half of
            each row holds cosines, the second sines.
        is_neox: whether an element is paired with the one half a rotation away, rather than with its neighbour.

    Returns:
        The rotated `q_pe` and `k_pe`, and the new `kv_cache`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: there are not that many slots in the cache.
    """
    op = "mla_rope_and_cache"
    if q_pe.dim() != 3 or k_pe.dim() != 2 or q_pe.shape[2] != k_pe.shape[1] or k_pe.shape[1] < 1:
        raise ValueError(
            f"vllm_ir.{op}: q_pe must be [tokens, heads, rope_size] and k_pe [tokens, rope_size], got shapes "
            f"{list(q_pe.shape)} and {list(k_pe.shape)}"
        )
    turned = rotated(op, positions, q_pe, k_pe, k_pe.shape[1], cos_sin_cache, is_neox, None)
    return *turned, with_latents(op, kv_c, turned[1], kv_cache, slot_mapping)


@register_op(activations=["x", "y"], allow_inplace=True)
def dual_rms_norm(
    x: Tensor, y: Tensor, x_weight: Tensor | None, y_weight: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    """`rms_norm` of two tensors, whose shapes may differ, with a weight each.

    Args:
        x: any floating dtype, at least one dimension.
        y: likewise.
        x_weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        y_weight: likewise for `y`.
        epsilon: added to either mean of squares.

    Returns:
        The normalised `x` and `y`, in the dtypes that these and their weights promote to.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    op = "dual_rms_norm"
    return normalized(op, x, x_weight, epsilon, None), normalized(op, y, y_weight, epsilon, None, "y")


@register_op(activations=["x", "y"], allow_inplace=True, reuses=[None, None, "y"])
def dual_rms_norm_dynamic_per_token_fp8_quant(
    x: Tensor,
    y: Tensor,
    x_weight: Tensor | None,
    y_weight: Tensor | None,
    epsilon: float,
    scale_ub: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`dual_rms_norm`, and `dynamic_per_token_scaled_fp8_quant` of its first result.

    Args:
        x: any floating dtype, at least one dimension, the last of which is not empty.
        y: any floating dtype, at least one dimension.
        x_weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        y_weight: likewise for `y`.
        epsilon: added to either mean of squares.
        scale_ub: float32, one element: bounds the rows' greatest magnitudes, and so the scales; None: no bound.

    Returns:
        The quantised rows of the normalised `x`, their scales in float32, `[..., 1]`, and the normalised `y`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    op = "dual_rms_norm_dynamic_per_token_fp8_quant"
    y_normed = normalized(op, y, y_weight, epsilon, None, "y")
    return *per_token_fp8(op, normalized(op, x, x_weight, epsilon, None), scale_ub), y_normed


@register_op(activations=["x", "y"], allow_inplace=True, reuses=[None, None, "y"])
def dual_rms_norm_per_token_group_fp8_quant(
    x: Tensor,
    y: Tensor,
    x_weight: Tensor | None,
    y_weight: Tensor | None,
    epsilon: float,
    group_size: int,
    use_ue8m0: bool = False,
    quant_epsilon: float = 1e-10,
) -> tuple[Tensor, Tensor, Tensor]:
    """`dual_rms_norm`, and `per_token_group_fp8_quant` of its first result.

    Args:
        x: any floating dtype, at least one dimension.
        y: likewise.
        x_weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        y_weight: likewise for `y`.
        epsilon: added to either mean of squares.
        group_size: elements of a group; divides the last dimension of `x`.
        use_ue8m0: round scales up to a power of two.
        quant_epsilon: positive; the least magnitude that a scale is made of.

    Returns:
        The quantised rows of the normalised `x`, their scales in float32, `[..., last dimension / group_size]`, and
        the normalised `y`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "dual_rms_norm_per_token_group_fp8_quant"
    x_normed = normalized(op, x, x_weight, epsilon, None)
    y_normed = normalized(op, y, y_weight, epsilon, None, "y")
    return *per_group_fp8(op, x_normed, group_size, use_ue8m0, quant_epsilon, "quant_epsilon"), y_normed


@mla_rope_and_cache.register_input_generator
def generate_mla_rope_and_cache_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    latent_size: int = 64,
    rope_size: int = 32,
    is_neox: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `mla_rope_and_cache`, all slots different."""
    blocks, block_size = max(8, -(-num_tokens // 16)), 16
    shapes = ((num_heads, rope_size), (rope_size,), (latent_size,))
    pieces = [torch.randn(num_tokens, *shape).to(dtype) for shape in shapes]
    cache = torch.randn(blocks, block_size, latent_size + rope_size).to(dtype)
    slots = torch.randperm(blocks * block_size)[:num_tokens]
    table = table_of_angles(1024, rope_size).to(dtype)
    return torch.randint(0, 1024, (num_tokens,)), *pieces, cache, slots, table, is_neox


@dual_rms_norm.register_input_generator
def generate_dual_rms_norm_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, epsilon: float = 1e-6
) -> tuple[object, ...]:
    """Random arguments of `dual_rms_norm`; the rows of `y` are half as long."""
    sizes = (hidden_size, max(1, hidden_size // 2))
    x, y = (torch.randn(num_tokens, size).to(dtype) for size in sizes)
    x_weight, y_weight = (torch.randn(size).to(dtype) for size in sizes)
    return x, y, x_weight, y_weight, epsilon


@dual_rms_norm_dynamic_per_token_fp8_quant.register_input_generator
def generate_dual_rms_norm_dynamic_per_token_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, bounded: bool = False
) -> tuple[object, ...]:
    """Random arguments of `dual_rms_norm_dynamic_per_token_fp8_quant`."""
    rows = generate_dual_rms_norm_inputs(num_tokens, hidden_size, dtype)
    return *rows, 3 * torch.rand(1) if bounded else None


@dual_rms_norm_per_token_group_fp8_quant.register_input_generator
def generate_dual_rms_norm_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `dual_rms_norm_per_token_group_fp8_quant`."""
    return *generate_dual_rms_norm_inputs(num_tokens, hidden_size, dtype), group_size
