"""Rotary position embedding by given cosines and sines, as models compute them from positions themselves.

`rotary_embedding` looks them up in a table. Here there is one for each element that turns, or one for each pair.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op
from vllm_ir.frontends.ops.rope import table_of_angles


@register_op(allow_inplace=True)
def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, is_neox: bool) -> Tensor:
    """Rotate pairs of elements of the last dimension of `x`: `x * cos + partners * sin`.

    The partner of a pair's first element is the second, negated, and that of the second is the first. Each product and
    the sum are rounded to the dtype that torch promotes their operands to.

    Args:
        x: floating, with an even last dimension, all of which turns.
        cos: floating, a shape that broadcasts to that of `x`. The last dimension is that of `x`, or half of it, which
            gives both elements of a pair one cosine.
        sin: likewise, with the last dimension of `cos`.
        is_neox: whether an element is paired with the one half a dimension away (GPT-NeoX), rather than with its
            neighbour (GPT-J).

    Returns:
        The rotated elements, in the shape of `x`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    _check(x, cos, sin)
    if cos.shape[-1] == x.shape[-1]:
        return x * cos + _joined(*_partners(x, is_neox), is_neox) * sin
    first, second = _pairs(x, is_neox)
    return _joined(first * cos - second * sin, second * cos + first * sin, is_neox)


def _partners(x: Tensor, is_neox: bool) -> tuple[Tensor, Tensor]:
    first, second = _pairs(x, is_neox)
    return -second, first


def _pairs(x: Tensor, is_neox: bool) -> tuple[Tensor, Tensor]:
    """The first and the second elements of all pairs."""
    half = x.shape[-1] // 2
    return (x[..., :half], x[..., half:]) if is_neox else (x[..., ::2], x[..., 1::2])


def _joined(first: Tensor, second: Tensor, is_neox: bool) -> Tensor:
    """Pairs in their places."""
    return torch.cat((first, second), dim=-1) if is_neox else torch.stack((first, second), dim=-1).flatten(-2)


def _check(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    if not x.is_floating_point() or x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(
            f"vllm_ir.apply_rotary: x must be floating with an even last dimension, got {x.dtype} of shape "
            f"{list(x.shape)}"
        )
    width = x.shape[-1]
    for name, table in (("cos", cos), ("sin", sin)):
        shape = list(table.shape)
        if not table.is_floating_point() or not 1 <= table.dim() <= x.dim():
            raise ValueError(
                f"vllm_ir.apply_rotary: {name} must be floating with 1 to {x.dim()} dimensions, got {table.dtype} of "
                f"shape {shape}"
            )
        if shape[-1] not in (width, width // 2) or shape[-1] != cos.shape[-1]:
            raise ValueError(
                f"vllm_ir.apply_rotary: the last dimension of cos and sin must be {width}, as of x, or {width // 2}; "
                f"{name} has shape {shape}"
            )
        if any(size not in (wanted, 1) for size, wanted in zip(shape[-2::-1], x.shape[-2::-1], strict=False)):
            raise ValueError(
                f"vllm_ir.apply_rotary: {name} must broadcast to the shape of x, {list(x.shape)}, got {shape}"
            )


@apply_rotary.register_input_generator
def generate_apply_rotary_inputs(
    num_tokens: int = 32,
    num_heads: int = 4,
    head_size: int = 64,
    dtype: torch.dtype = torch.bfloat16,
    is_neox: bool = True,
    per_pair: bool = False,
) -> tuple[object, ...]:
    """Random arguments of `apply_rotary`: heads of tokens at positions from 0, angles for elements or for pairs."""
    halves = table_of_angles(num_tokens, head_size).to(dtype).unsqueeze(1).chunk(2, dim=-1)
    cos, sin = (half if per_pair else torch.cat((half, half), dim=-1) for half in halves)
    return torch.randn(num_tokens, num_heads, head_size).to(dtype), cos, sin, is_neox
