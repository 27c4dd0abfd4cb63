"""Multimodal rotary position embedding (MRoPE): tokens of images and videos have a position for each axis.

The pairs of a head are shared out between axes, time, height and width as a rule, and each turns by the token's
position along its own. Where all positions of a token are equal, as for text, it is `rotary_embedding`. Sections come
from the configurations of Qwen2-VL (`mrope_section`) and Qwen3-VL (where they are interleaved).
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op
from vllm_ir.frontends.ops.rope import check_rotary, rotated_by_rows, table_of_angles


@register_op(activations=["query", "key"], allow_inplace=True)
def mrope_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    mrope_section: list[int],
    mrope_interleaved: bool = False,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`rotary_embedding` with a position for each of several axes, each of which turns some pairs of every head.

    Args:
        positions: integers, `[axes, tokens...]`.
        query: floating, `[tokens..., heads * head_size]` or `[tokens..., heads, head_size]`.
        key: likewise; the number of heads may differ.
        head_size: elements of a head.
        cos_sin_cache: `[positions, rotary_dim]`; the first half of each row holds cosines, the second sines.
        is_neox: whether an element is paired with the one half a rotation away, rather than with its neighbour.
        mrope_section: how many pairs each axis turns; their sum is `rotary_dim / 2`.
        mrope_interleaved: whether the axes take turns, pair by pair, until each of those behind the first has as many
            as its section says; the first has all others. If not, the sections lie one behind the other.
        rotary_dim: the number of columns of `cos_sin_cache`, or None.

    Returns:
        The rotated query and key, shaped like the arguments.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    sections = (mrope_section, mrope_interleaved)
    return rotated_by_axes(
        "mrope_embedding", positions, query, key, head_size, cos_sin_cache, is_neox, *sections, rotary_dim
    )


def rotated_by_axes(
    op: str,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    mrope_section: list[int],
    mrope_interleaved: bool,
    rotary_dim: int | None,
) -> tuple[Tensor, Tensor]:
    """The definition of `mrope_embedding`; errors name `op`."""
    check_rotary(op, positions, query, key, head_size, cos_sin_cache, rotary_dim)
    half = cos_sin_cache.shape[1] // 2
    if min(mrope_section, default=-1) < 0 or sum(mrope_section) != half:
        raise ValueError(
            f"vllm_ir.{op}: mrope_section must be numbers of pairs with the sum {half}, half of the columns of "
            f"cos_sin_cache, got {mrope_section}"
        )
    if positions.dim() < 2 or positions.shape[0] != len(mrope_section):
        raise ValueError(
            f"vllm_ir.{op}: positions must be [{len(mrope_section)}, tokens...], a row for each of mrope_section, got "
            f"shape {list(positions.shape)}"
        )
    rows = cos_sin_cache.index_select(0, positions.flatten())
    by_axis = rows.view((len(mrope_section), positions[0].numel(), 2, half))
    chosen = _taking_turns(by_axis, mrope_section) if mrope_interleaved else _side_by_side(by_axis, mrope_section)
    angles = chosen.flatten(1)
    return rotated_by_rows(query, angles, head_size, is_neox), rotated_by_rows(key, angles, head_size, is_neox)


def _side_by_side(by_axis: Tensor, sections: list[int]) -> Tensor:
    """Of `[axes, tokens, 2, pairs]` the first pairs of the first axis, the next of the second, and so on."""
    return torch.cat([piece[axis] for axis, piece in enumerate(torch.split(by_axis, sections, -1))], -1)


def _taking_turns(by_axis: Tensor, sections: list[int]) -> Tensor:
    """Of `[axes, tokens, 2, pairs]` the pairs `axis, axis + axes, ...` of each axis, those left over of the first."""
    pairs = torch.arange(by_axis.shape[-1], device=by_axis.device)
    chosen = by_axis[0]
    for axis in range(1, len(sections)):
        turn = (pairs % len(sections) == axis) & (pairs < len(sections) * sections[axis])
        chosen = torch.where(turn, by_axis[axis], chosen)
    return chosen


@mrope_embedding.register_input_generator
def generate_mrope_embedding_inputs(
    num_tokens: int = 32,
    hidden_size: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    head_size: int = 64,
    is_neox: bool = True,
    mrope_interleaved: bool = False,
    max_position: int = 4096,
) -> tuple[object, ...]:
    """Random arguments of `mrope_embedding`: `hidden_size` columns of queries, one head of keys, three axes."""
    table = table_of_angles(max_position, head_size).to(dtype)
    query, key = (torch.randn(num_tokens, columns).to(dtype) for columns in (hidden_size, head_size))
    positions = torch.randint(0, max_position, (3, num_tokens))
    return positions, query, key, head_size, table, is_neox, sections_of(head_size), mrope_interleaved


def sections_of(head_size: int) -> list[int]:
    """Sections for time, height and width in the proportions of Qwen2-VL, 2 to 3 to 3."""
    pairs = head_size // 2
    side = 3 * pairs // 8
    return [pairs - 2 * side, side, side]
