"""The kernel of `reshape_and_cache`: agreement bit for bit, windows of a greater tensor, and planted faults."""

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

OP = ops.reshape_and_cache
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool]
# tokens, blocks, block_size, kv_heads, head_size; the last ones are work for several threads.
SHAPES = [(1, 1, 1, 1, 1), (3, 2, 4, 2, 8), (7, 5, 3, 1, 33), (0, 2, 4, 2, 8), (2, 2, 4, 0, 8), (2, 2, 4, 2, 0)]
SHAPES += [(9, 4, 16, 4, 64), (700, 50, 16, 2, 96)]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 9).to(dtype)


def slot_mappings(tokens: int, slots: int) -> Iterator[Tensor]:
    """All different, with some negative, with many twice, and all negative."""
    generator = torch.Generator().manual_seed(7)
    different = torch.randperm(slots, generator=generator)[:tokens]
    yield different
    if tokens > 0:
        yield different.where(torch.arange(tokens) % 3 != 0, -1 - torch.arange(tokens))
        yield torch.randint(-2, slots, (tokens,), generator=generator)
        yield torch.full((tokens,), slots - 1)
        yield torch.full((tokens,), -1)


def cases(agreement: ModuleType, dtype: torch.dtype) -> Iterator[object]:
    for tokens, blocks, block_size, heads, size in SHAPES:
        new, cache = (max(tokens, 1), heads, size), (blocks, block_size, heads, size)
        for slots in slot_mappings(min(tokens, blocks * block_size), blocks * block_size):
            key, value = (random(*new, dtype=dtype, seed=seed)[: len(slots)] for seed in (0, 1))
            yield agreement.Case((key, value, *(random(*cache, dtype=dtype, seed=seed) for seed in (2, 3)), slots))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_agrees_with_the_native_definition(agreement: ModuleType, dtype: torch.dtype):
    impl = OP.impls[PROVIDER]
    for case in cases(agreement, dtype):
        assert impl.rejection(case.args) is None
    agreement.check(OP.name, impl.impl_fn, cases(agreement, dtype))


def test_the_number_of_threads_does_not_matter(agreement: ModuleType):
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            agreement.check(OP.name, OP.impls[PROVIDER].impl_fn, cases(agreement, torch.float32))
    finally:
        torch.set_num_threads(threads)


def faulty(key, value, key_cache, value_cache, slots, *, fault=""):
    key_cache, value_cache = key_cache.clone(), value_cache.clone()
    count, block_size = key_cache.shape[0] * key_cache.shape[1], key_cache.shape[1]
    order = range(len(slots))
    for token in reversed(order) if fault == "first token of a slot wins" else order:
        slot = int(slots[token])
        if fault == "slot off by one" and slot >= 0:
            slot = (slot + 1) % count
        if fault == "negative slot written":
            slot %= count
        if fault == "slot 0 skipped" and slot == 0:
            continue
        if fault == "last token skipped" and token == len(slots) - 1:
            continue
        if slot >= 0:
            place = (slot // block_size, slot % block_size)
            if fault == "block and offset swapped":
                place = (slot % key_cache.shape[0], slot // key_cache.shape[0])
            key_cache[place] = key[token].flip(0) if fault == "heads in another order" else key[token]
            value_cache[place] = key[token] if fault == "keys for values" else value[token]
    return key_cache, (value_cache.clone() if fault != "values left" else value_cache * 0)


FAULTS = [
    "slot off by one",
    "negative slot written",
    "slot 0 skipped",
    "last token skipped",
    "first token of a slot wins",
    "block and offset swapped",
    "heads in another order",
    "keys for values",
    "values left",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(agreement: ModuleType, fault: str):
    with pytest.raises(AssertionError):
        agreement.check(OP.name, lambda *args: faulty(*args, fault=fault), cases(agreement, torch.float32))


def test_without_a_fault_the_same_implementation_passes(agreement: ModuleType):
    agreement.check(OP.name, faulty, cases(agreement, torch.float32))


# Of [2, blocks, block_size, kv_heads, head_size], keys and values: a tensor of all, and the windows of both onto it.
LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], tuple[Tensor, Tensor]], bool]] = {
    "a layer of a stacked cache": (lambda x: torch.stack((x, x, x)), lambda base: base[1].unbind(0), True),
    "block by block": (lambda x: x.movedim(0, 1).contiguous(), lambda base: base.unbind(1), True),
    "head by head": (lambda x: x.movedim(0, -2).contiguous(), lambda base: base.unbind(-2), True),
    "row by row": (lambda x: torch.cat(x.unbind(0), -1), lambda base: base.chunk(2, -1), True),
    "heads before offsets": (
        lambda x: x.transpose(2, 3).contiguous(),
        lambda base: base.transpose(2, 3).unbind(0),
        True,
    ),
    "blocks backwards in memory": (lambda x: x.transpose(1, 2).contiguous(), lambda x: x.transpose(1, 2), True),
    "elements of keys and values by turns": (
        lambda x: torch.stack(x.unbind(0), -1),
        lambda base: base.unbind(-1),
        False,
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pieces", [True, False])
def test_windows_are_written_where_they_lie(pieces: bool, layout: str, dtype: torch.dtype):
    make, windows, taken = LAYOUTS[layout]
    base = make(random(2, 5, 4, 3, 16, dtype=dtype, seed=2))
    key_cache, value_cache = windows(base)
    projection = random(6, 3 * 40, dtype=dtype)
    key, value, _ = projection.view(6, 3, 40).split([16, 16, 8], -1)
    if not pieces:
        key, value = key.contiguous(), value.contiguous()
    slots = torch.tensor([3, 19, -1, 0, 7, 3, 8, 9])[:6]
    want = OP.native(key, value, key_cache, value_cache, slots)
    expected = base.clone()
    for window, content in zip(windows(expected), want, strict=True):
        window.copy_(content)
    before = base.clone()
    args = (key, value, key_cache, value_cache, slots)
    with OP.set_priority([PROVIDER]):
        assert (OP.dispatch(*args).provider == PROVIDER) == taken
        for got, right in zip(OP(*args), want, strict=True):
            assert torch.equal(got, right)
            assert got.stride() == right.stride(), "the layout is not the one that was traced"
        assert torch.equal(base, before)
    # The operator itself takes any strides.
    got = OP.impls[PROVIDER].impl_fn(*args)
    assert [result.data_ptr() for result in got] == [key_cache.data_ptr(), value_cache.data_ptr()]
    assert torch.equal(base, expected)


def test_donated_caches_are_written_in_place():
    base = random(2, 2, 5, 4, 3, 16, seed=2)
    key_cache, value_cache = base[1]
    key, value, slots = random(2, 3, 16), random(2, 3, 16, seed=1), torch.tensor([11, 2])
    want = OP.native(key, value, key_cache, value_cache, slots)
    with OP.set_priority([PROVIDER]):
        got = OP.maybe_inplace(key, value, key_cache, value_cache, slots)
    assert [result.data_ptr() for result in got] == [key_cache.data_ptr(), value_cache.data_ptr()]
    assert all(map(torch.equal, base[1], want))


KEY, CACHE, SLOTS = random(2, 3, 8), random(5, 4, 3, 8), torch.tensor([0, 19])
LEFT: list[tuple[str, tuple[Tensor, ...]]] = [
    ("another device", (KEY, KEY, CACHE.to("meta"), CACHE, SLOTS)),
    ("slots of another dtype", (KEY, KEY, CACHE, CACHE.clone(), SLOTS.int())),
    ("slots of two dimensions", (KEY, KEY, CACHE, CACHE.clone(), SLOTS[None])),
    ("another number of tokens", (KEY, KEY, CACHE, CACHE.clone(), SLOTS[:1])),
    ("another dtype", (KEY, KEY.half(), CACHE, CACHE.clone(), SLOTS)),
    ("another number of heads", (KEY, KEY[:, :2], CACHE, CACHE.clone(), SLOTS)),
    ("caches of different shapes", (KEY, KEY, CACHE, CACHE[:4], SLOTS)),
    ("a cache without blocks", (KEY, KEY, CACHE[0], CACHE[0], SLOTS)),
    ("columns of a key", (random(2, 3, 16)[..., ::2], KEY, CACHE, CACHE.clone(), SLOTS)),
]


@pytest.mark.parametrize(("what", "args"), LEFT, ids=lambda part: part if type(part) is str else "")
def test_arguments_that_are_left_to_the_native_definition(what: str, args: tuple[Tensor, ...]):
    assert OP.select(args, [PROVIDER])[0].provider == "native"


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        ((KEY, KEY, CACHE, CACHE.clone(), SLOTS + 1), IndexError, "slot 20 is not in the cache, which has 20"),
        ((KEY, KEY, CACHE, CACHE.clone(), SLOTS.int()), RuntimeError, r"must be int64 of shape \[tokens\].*got Int"),
        (
            (KEY, KEY, CACHE, CACHE.clone(), SLOTS[:1]),
            RuntimeError,
            r"key must be \[1, kv_heads, head_size\].*\[2, 3, 8",
        ),
        ((KEY, KEY.half(), CACHE, CACHE.clone(), SLOTS), RuntimeError, "value must be .*got Half.*and Float"),
        ((KEY, KEY, CACHE, CACHE[:4].clone(), SLOTS), RuntimeError, r"must have the same blocks and block_size, got"),
        ((KEY, KEY, CACHE, CACHE, SLOTS), RuntimeError, "unsupported operation.*memory"),
        ((KEY, KEY, CACHE[:1].expand(5, 4, 3, 8), CACHE.clone(), SLOTS), RuntimeError, "unsupported operation.*memory"),
    ],
    ids=lambda part: part[:20] if type(part) is str else "",
)
def test_errors_come_before_anything_is_written(args: tuple[Tensor, ...], kind: type[Exception], message: str):
    before = [arg.clone() for arg in args]
    with pytest.raises(kind, match=message):
        torch.ops.vllm_ir_cpu.reshape_and_cache_(*args)
    assert all(map(torch.equal, args, before))
