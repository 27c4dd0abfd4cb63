"""`reshape_and_cache`: its native definition against writing one token after the other, and what it refuses."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import ops

BLOCKS, BLOCK, HEADS, SIZE = 3, 4, 2, 5


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def caches(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    shape = (BLOCKS, BLOCK, HEADS, SIZE)
    return random(*shape, dtype=dtype, seed=2), random(*shape, dtype=dtype, seed=3)


def written(new: Tensor, cache: Tensor, slots: list[int]) -> Tensor:
    """The cache after one token after the other."""
    result = cache.clone()
    for token, slot in enumerate(slots):
        if slot >= 0:
            result[slot // BLOCK, slot % BLOCK] = new[token]
    return result


SLOTS: dict[str, list[int]] = {
    "different": [7, 0, 11, 4],
    "none": [],
    "one": [11],
    "one without a slot": [-1],
    "some without a slot": [-1, 3, -100, 0, -1],
    "the first without a slot, beside slot 0": [-1, 0],
    "all without a slot": [-1, -2, -1],
    "twice": [5, 6, 5, 6, 0],
    "thrice, and some without": [5, -1, 5, 11, 5, -7, 11],
    "the greatest slot twice": [11, 11, -1],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("name", SLOTS)
def test_the_last_token_of_a_slot_is_there(name: str, dtype: torch.dtype) -> None:
    slots = SLOTS[name]
    key, value = (random(len(slots), HEADS, SIZE, seed=seed).mul(9).to(dtype) for seed in (0, 1))
    key_cache, value_cache = caches(dtype)
    before = key_cache.clone(), value_cache.clone()
    got = ops.reshape_and_cache(key, value, key_cache, value_cache, torch.tensor(slots, dtype=torch.int64))
    assert torch.equal(got[0], written(key, key_cache, slots))
    assert torch.equal(got[1], written(value, value_cache, slots))
    assert torch.equal(key_cache, before[0])
    assert torch.equal(value_cache, before[1])


@pytest.mark.parametrize(
    "window",
    [
        lambda pair: pair.unbind(0),
        lambda pair: pair.movedim(0, 1).contiguous().unbind(1),
        lambda pair: pair.movedim(0, -1).contiguous().unbind(-1),
        lambda pair: pair.transpose(2, 3).contiguous().transpose(2, 3).unbind(0),
    ],
    ids=["one behind the other", "block by block", "element by element", "heads before offsets"],
)
def test_windows_of_any_strides(window: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
    key_cache, value_cache = window(torch.stack(caches()))
    key, value = random(3, 2 * HEADS, SIZE).chunk(2, 1)
    got = ops.reshape_and_cache(key, value, key_cache, value_cache, torch.tensor([9, -1, 2])[:])
    assert torch.equal(got[0], written(key, key_cache, [9, -1, 2]))
    assert torch.equal(got[1], written(value, value_cache, [9, -1, 2]))


def test_values_may_have_another_size_than_keys() -> None:
    key_cache, value_cache = caches()[0], random(BLOCKS, BLOCK, HEADS, 3)
    key, value = random(2, HEADS, SIZE), random(2, HEADS, 3)
    _, got = ops.reshape_and_cache(key, value, key_cache, value_cache, torch.tensor([1, 6]))
    assert torch.equal(got, written(value, value_cache, [1, 6]))


def test_the_caches_may_be_given_away() -> None:
    assert ops.reshape_and_cache.activations == ("key_cache", "value_cache")
    assert ops.reshape_and_cache.maybe_inplace is not None


KEY, VALUE, CACHES, ALL = random(2, HEADS, SIZE), random(2, HEADS, SIZE), caches(), torch.tensor([0, 1])
REFUSED = [
    (
        (KEY[:, :1], VALUE, *CACHES, ALL),
        r"key must be \[tokens, kv_heads, head_size\] and key_cache .*got torch.float32 of shape \[2, 1, 5\]",
    ),
    ((KEY, VALUE.half(), *CACHES, ALL), r"value must be .* of the same dtype, got torch.float16 .* and torch.float32"),
    ((KEY.flatten(1), VALUE, *CACHES, ALL), r"key must be .*got torch.float32 of shape \[2, 10\]"),
    (
        (KEY, VALUE, CACHES[0], CACHES[1][:2], ALL),
        r"must have the same blocks, block_size and kv_heads, got shapes \[3, 4, 2, 5\] and \[2, 4, 2, 5\]",
    ),
    ((KEY, VALUE, *CACHES, ALL.int()), r"slot_mapping must be torch.int64, got torch.int32"),
    ((KEY, VALUE, *CACHES, ALL[:1]), r"a slot for each token of key, 2, and value, 2, got shape \[1\]"),
    ((KEY, VALUE[:1], *CACHES, ALL), r"a slot for each token of key, 2, and value, 1, got shape \[2\]"),
    ((KEY, VALUE, *CACHES, ALL[None]), r"slot_mapping must have a slot for each token.*got shape \[1, 2\]"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda part: part[:30] if type(part) is str else "")
def test_refused_arguments(args: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^vllm_ir.reshape_and_cache: .*{message}") as caught:
        ops.reshape_and_cache(*args)
    assert "\n" not in str(caught.value)


def test_a_slot_that_is_not_in_the_cache() -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        ops.reshape_and_cache(KEY, VALUE, *CACHES, torch.tensor([0, BLOCKS * BLOCK]))
