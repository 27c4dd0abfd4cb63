"""`paged_attention`: its native definition against attention of one sequence after the other, and what it refuses."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vllm_ir.frontends.ops import ops

HEADS, KV_HEADS, SIZE, BLOCK = 6, 2, 8, 4
SCALE = SIZE**-0.5


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def arguments(lengths: list[int], queries: list[int], behind: int = 0, dtype: torch.dtype = torch.float32) -> list:
    """Sequences of these lengths, whose last `queries` tokens ask; `behind` tokens belong to none."""
    width = max([1, *(-(-length // BLOCK) for length in lengths)])
    order = torch.randperm(len(lengths) * width + 2, generator=torch.Generator().manual_seed(5))
    table = order[: len(lengths) * width].reshape(len(lengths), width)
    caches = [random(len(order), BLOCK, KV_HEADS, SIZE, dtype=dtype, seed=seed) for seed in (1, 2)]
    # No place that holds no token may be read, nor an entry of the table that stands for no block.
    used = torch.zeros(len(order) * BLOCK, dtype=torch.bool)
    for row, length in zip(table, lengths, strict=True):
        used[(row[:, None] * BLOCK + torch.arange(BLOCK)).flatten()[:length]] = True
        row[-(-length // BLOCK) :] = 10**6
    for cache in caches:
        cache.flatten(0, 1)[~used] = torch.nan
    starts = torch.tensor([0, *queries]).cumsum(0)
    query = random(sum(queries) + behind, HEADS, SIZE, dtype=dtype)
    return [query, *caches, table, torch.tensor(lengths, dtype=torch.int64), starts, SCALE]


def one_by_one(query, key_cache, value_cache, table, lengths, starts, scale, window=None, cap=None) -> Tensor:
    """Attention of torch in float32, sequence by sequence."""
    result = torch.zeros_like(query)
    for row, length, start, end in zip(table, lengths.tolist(), starts.tolist(), starts.tolist()[1:], strict=False):
        blocks = row[: -(-length // BLOCK)]
        key, value = (
            cache[blocks].flatten(0, 1)[:length].float().transpose(0, 1) for cache in (key_cache, value_cache)
        )
        for token in range(start, end):
            last = length - (end - start) + token - start
            first = 0 if window is None else max(0, last - window + 1)
            if last < 0:
                continue
            rows = query[token].float().reshape(KV_HEADS, -1, SIZE)
            if cap is None:
                seen = (part[:, first : last + 1] for part in (key, value))
                attended = F.scaled_dot_product_attention(rows, *seen, scale=scale)
            else:
                scores = cap * torch.tanh(rows @ key[:, first : last + 1].mT * scale / cap)
                attended = scores.softmax(-1) @ value[:, first : last + 1]
            result[token] = attended.reshape(HEADS, SIZE).to(query.dtype)
    return result


SEQUENCES: dict[str, tuple[list[int], list[int], int]] = {
    "a prompt": ([5], [5], 0),
    "one token each": ([7, 1, 12], [1, 1, 1], 0),
    "the end of a prompt": ([11, 4], [3, 4], 0),
    "mixed, with tokens of no sequence": ([9, 13, 1], [4, 1, 1], 3),
    "sequences without tokens": ([9, 0, 3], [2, 0, 0], 1),
    "none cached": ([0, 3], [2, 1], 0),
    "fewer cached than asking": ([2], [5], 0),
    "no sequence": ([], [], 2),
    "no token": ([3], [0], 0),
    "nothing": ([], [], 0),
}


@pytest.mark.parametrize(("window", "cap"), [(None, None), (1, None), (3, 2.0), (100, 0.5)])
@pytest.mark.parametrize("name", SEQUENCES)
def test_each_sequence_attends_to_itself(name: str, window: int | None, cap: float | None) -> None:
    args = arguments(*SEQUENCES[name])
    got = ops.paged_attention(*args, window, cap)
    assert got.is_contiguous()
    torch.testing.assert_close(got, one_by_one(*args, window, cap), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_arithmetic_is_float32_and_only_the_result_is_rounded(dtype: torch.dtype) -> None:
    args = arguments([9, 13], [4, 1], 1, dtype)
    got = ops.paged_attention(*args)
    wide = [part.float() if isinstance(part, Tensor) and part.is_floating_point() else part for part in args]
    assert got.dtype is dtype
    assert torch.equal(got, ops.paged_attention(*wide).to(dtype))


def test_tokens_without_a_key_get_zeros() -> None:
    query, *others = arguments([0, 2], [1, 3], 2)
    got = ops.paged_attention(query, *others)
    assert [bool(row.any()) for row in got] == [False, False, True, True, False, False]


def test_great_scores() -> None:
    args = arguments([9], [4])
    args[0] = args[0] * 1e4
    torch.testing.assert_close(ops.paged_attention(*args), one_by_one(*args), rtol=1e-4, atol=1e-5)


def test_integers_of_either_width() -> None:
    query, key, value, table, lengths, starts, scale = arguments([9, 2], [2, 1])
    got = ops.paged_attention(query, key, value, table.int(), lengths.int(), starts.int(), scale)
    assert torch.equal(got, ops.paged_attention(query, key, value, table, lengths, starts, scale))


def test_a_block_that_is_not_in_the_cache() -> None:
    query, key, value, table, *others = arguments([9, 2], [2, 1])
    table[0, 2] = len(key)
    with pytest.raises(IndexError, match="out of bounds"):
        ops.paged_attention(query, key, value, table, *others)


QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, _ = arguments([5, 3], [2, 1])
REFUSED = [
    ((QUERY.long(), KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE), r"query must be floating.*got torch.int64"),
    ((QUERY.flatten(1), KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE), r"query must be.*of shape \[3, 48\]"),
    ((QUERY[..., 1:], KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE), r"key_cache must be floating.*kv_heads, 7\]"),
    ((QUERY, KEY, VALUE.int(), TABLE, LENGTHS, STARTS, SCALE), r"value_cache must be floating.*got torch.int32"),
    ((QUERY, KEY, VALUE[1:], TABLE, LENGTHS, STARTS, SCALE), r"key_cache and value_cache must have one shape, got"),
    ((QUERY[:, :5], KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE), r"must be a multiple of kv_heads.*got 5 heads"),
    ((QUERY, KEY[:, :0], VALUE[:, :0], TABLE, LENGTHS, STARTS, SCALE), r"block_size positive, got 6 heads"),
    ((QUERY, KEY, VALUE, TABLE.short(), LENGTHS, STARTS, SCALE), r"block_table must be int32 or int64 with 2 dim"),
    ((QUERY, KEY, VALUE, TABLE[0], LENGTHS, STARTS, SCALE), r"block_table must be.*of shape \[2\]"),
    ((QUERY, KEY, VALUE, TABLE, LENGTHS.float(), STARTS, SCALE), r"seq_lens must be int32 or int64 with 1 dimension"),
    ((QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS[None], SCALE), r"query_start must be.*of shape \[1, 3\]"),
    ((QUERY, KEY, VALUE, TABLE[:1], LENGTHS, STARTS, SCALE), r"for the 2 sequences of seq_lens, block_table must"),
    ((QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS[1:], SCALE), r"query_start 3 elements, got shapes \[2, 2\] and \[2\]"),
    ((QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE, 0), r"sliding_window must be positive, got 0"),
    ((QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE, None, 0.0), r"soft_cap must be positive, got 0.0"),
    ((QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE, None, float("nan")), r"soft_cap must be positive, got nan"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda part: part[:30] if type(part) is str else "")
def test_refused_arguments(args: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^vllm_ir.paged_attention: .*{message}") as caught:
        ops.paged_attention(*args)
    assert "\n" not in str(caught.value)
