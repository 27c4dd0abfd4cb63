"""Multimodal rotary embedding: which axis turns which pairs, and the fused ops that it is part of."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import vllm_ir as ir

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
TOKENS, HEADS, KV_HEADS, SIZE = 7, 4, 2, 48
SECTIONS = [7, 8, 9]
ops = ir.ops


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


POSITIONS = torch.tensor([[3, 0, 9, 9, 4, 1, 8], [3, 1, 2, 7, 7, 5, 0], [3, 6, 6, 4, 8, 2, 9]])
TABLE = random(10, SIZE, seed=3)


def axis_of(pair: int, sections: list[int], interleaved: bool) -> int:
    """The axis that turns a pair, as the docstring says it."""
    if not interleaved:
        return next(axis for axis in range(3) if pair < sum(sections[: axis + 1]))
    return pair % 3 if pair // 3 < sections[pair % 3] else 0


def gathered(table: Tensor, positions: Tensor, sections: list[int], interleaved: bool) -> Tensor:
    """A row of cosines and sines for each token, put together element by element."""
    half = table.shape[1] // 2
    axes = [axis_of(column % half, sections, interleaved) for column in range(2 * half)]
    columns = [table[positions[axis], column] for column, axis in enumerate(axes)]
    return torch.stack(columns, -1)


def same(left: Tensor, right: Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def variants() -> Iterator[tuple[list[int], bool, bool]]:
    for is_neox in (True, False):
        yield SECTIONS, False, is_neox
        yield [8, 8, 8], True, is_neox
        yield [10, 7, 7], True, is_neox
        yield [24, 0, 0], False, is_neox


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_each_axis_turns_its_pairs(dtype: torch.dtype) -> None:
    table = TABLE.to(dtype)
    query, key = random(TOKENS, HEADS * SIZE, dtype=dtype), random(TOKENS, KV_HEADS, SIZE, dtype=dtype, seed=1)
    for sections, interleaved, is_neox in variants():
        rows = gathered(table, POSITIONS, sections, interleaved)
        want = ops.rotary_embedding(torch.arange(TOKENS), query, key, SIZE, rows, is_neox)
        got = ops.mrope_embedding(POSITIONS, query, key, SIZE, table, is_neox, sections, interleaved)
        assert all(map(same, got, want))


def test_equal_positions_are_rotary_embedding() -> None:
    query, key = random(2, 3, 2 * SIZE), random(2, 3, SIZE)
    positions = torch.tensor([[0, 5, 1], [9, 2, 2]])
    for sections, interleaved, is_neox in variants():
        got = ops.mrope_embedding(positions.expand(3, 2, 3), query, key, SIZE, TABLE, is_neox, sections, interleaved)
        assert all(map(same, got, ops.rotary_embedding(positions, query, key, SIZE, TABLE, is_neox)))


def test_the_rest_of_a_head_stays() -> None:
    query, key = random(TOKENS, HEADS, 64), random(TOKENS, 1, 64, seed=1)
    got, _ = ops.mrope_embedding(POSITIONS.int(), query, key, 64, TABLE, True, SECTIONS)
    assert same(got[..., SIZE:].contiguous(), query[..., SIZE:].contiguous())
    assert not torch.equal(got[..., :SIZE], query[..., :SIZE])


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
def test_as_in_transformers(family: str) -> None:
    """Cosines and sines as its rotary modules mix them; they take angles from the same table here."""
    modeling = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    interleaved = family == "qwen3_vl"
    rotary = modeling.Qwen3VLTextRotaryEmbedding if interleaved else modeling.Qwen2VLRotaryEmbedding
    mix = getattr(rotary, "recomposition_frequencies", None)
    assert mix is not None, "transformers mixes frequencies elsewhere now"

    class Sections:
        mrope_section = [10, 7, 7] if interleaved else SECTIONS

    halves = TABLE[POSITIONS].unsqueeze(1)  # [axes, batch, tokens, cosines and sines]
    cos, sin = (mix(Sections(), half.clone()).squeeze(0) for half in halves.chunk(2, -1))
    query = random(TOKENS, HEADS, SIZE)
    want = query * cos.unsqueeze(1) + modeling.rotate_half(query) * sin.unsqueeze(1)
    got, _ = ops.mrope_embedding(POSITIONS, query, query, SIZE, TABLE, True, Sections.mrope_section, interleaved)
    assert same(got, want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_with_norms_of_heads_and_the_cache(dtype: torch.dtype) -> None:
    sizes = [HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE]
    slots, scale = torch.tensor([5, -1, 11, 5, 0, 7, 5]), torch.tensor([0.013])
    key_cache, value_cache = random(3, 2, 4, KV_HEADS, SIZE, dtype=dtype, seed=6).unbind(1)
    weights = [(None, None), (random(SIZE, dtype=dtype, seed=2), random(SIZE, dtype=dtype, seed=3))]
    for qkv in (random(TOKENS, sum(sizes), dtype=dtype), random(TOKENS, sum(sizes) + 3, dtype=dtype)[:, 3:]):
        for pair in weights:
            pieces = [piece.unflatten(-1, (-1, SIZE)) for piece in qkv.split(sizes, -1)]
            query, key = (ops.rms_norm(x, weight, 1e-6) for x, weight in zip(pieces, pair, strict=False))
            for sections, interleaved, is_neox in variants():
                mixed = (sections, interleaved)
                turned = ops.mrope_embedding(POSITIONS, query, key, SIZE, TABLE, is_neox, *mixed)
                caches = ops.reshape_and_cache(turned[1], pieces[2], key_cache, value_cache, slots)
                want = (*(x.flatten(1) for x in (*turned, pieces[2])), *caches)
                inputs = (qkv, POSITIONS, *pair, 1e-6, HEADS, KV_HEADS, SIZE, TABLE, is_neox)
                rest = (key_cache, value_cache, slots, *mixed)
                got = ops.qk_norm_mrope_and_cache(*inputs, *rest)
                assert all(map(same, got, want))
                got = ops.qk_norm_mrope_and_cache_static_fp8_quant(*inputs, *rest, scale)
                assert all(map(same, got, (ops.static_scaled_fp8_quant(want[0], scale), *want[1:])))


ROWS = (random(TOKENS, SIZE), random(TOKENS, SIZE), SIZE)
REFUSED = [
    ((POSITIONS, *ROWS, TABLE, True, [8, 8, 9]), r"numbers of pairs with the sum 24, .*got \[8, 8, 9\]"),
    ((POSITIONS, *ROWS, TABLE, True, [25, -1, 0]), r"numbers of pairs .*got \[25, -1, 0\]"),
    ((POSITIONS, *ROWS, TABLE, True, []), r"numbers of pairs .*got \[\]"),
    ((POSITIONS[0], *ROWS, TABLE, True, SECTIONS), r"positions must be \[3, tokens...\].*got shape \[7\]"),
    ((POSITIONS, *ROWS, TABLE, True, [12, 12]), r"positions must be \[2, tokens...\].*got shape \[3, 7\]"),
    ((POSITIONS.float(), *ROWS, TABLE, True, SECTIONS), "positions must be integers, got torch.float32"),
    ((POSITIONS, *ROWS, TABLE, True, SECTIONS, False, 24), "rotary_dim 24 is not the number of columns"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused_arguments(args: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^vllm_ir.mrope_embedding: .*{message}") as caught:
        ops.mrope_embedding(*args)
    assert "\n" not in str(caught.value)
