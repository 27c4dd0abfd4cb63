"""The kernel of `paged_attention`: within a derived bound of the native definition and of float64; planted faults."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

OP = ops.paged_attention
ROUNDOFF = 2.0**-24
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
TILE = 32
"""Keys that the kernel takes at a time."""


@dataclass(frozen=True)
class Shape:
    """Lengths of sequences, how many of their last tokens ask, tokens of no sequence, and heads."""

    lengths: tuple[int, ...]
    queries: tuple[int, ...]
    behind: int = 0
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    block_size: int = 4


SHAPES = [
    Shape((5,), (5,), heads=1, kv_heads=1, size=1, block_size=1),
    Shape((7, 1, 33), (7, 1, 1), size=8),
    Shape((40, 17), (3, 17), heads=8, size=64, block_size=16),
    Shape((100,), (1,), heads=8, kv_heads=1, size=80, block_size=16),
    Shape((9, 0, 4), (2, 0, 3), behind=2, heads=6, kv_heads=3, size=33, block_size=5),
    Shape((2, 0, 31), (5, 2, 1), size=7),
    Shape((32, 64, 65, 31), (1, 2, 1, 31), heads=3, kv_heads=3, size=20, block_size=32),
    Shape((300, 129), (2, 40), heads=5, kv_heads=1, size=128, block_size=16),
    Shape((3,), (0,)),
    Shape((), (), behind=3),
    Shape((), ()),
    Shape((4,), (2,), size=256),
    Shape((4,), (2,), heads=0),
]
OPTIONS: list[tuple[int | None, float | None]] = [(None, None), (1, None), (37, None), (None, 3.0), (5, 0.5)]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def arguments(shape: Shape, dtype: torch.dtype, scale: float = 1.0) -> list:
    """Blocks anywhere in the cache; NaN in places that no token has, and no number of a block where none is needed."""
    block_size = shape.block_size
    width = max([1, *(-(-length // block_size) + 1 for length in shape.lengths)])
    blocks = len(shape.lengths) * width + 2
    table = torch.randperm(blocks, generator=torch.Generator().manual_seed(5))[: len(shape.lengths) * width]
    table = table.reshape(len(shape.lengths), width)
    caches = [random(blocks, block_size, shape.kv_heads, shape.size, dtype=dtype, seed=seed) for seed in (1, 2)]
    used = torch.zeros(blocks * block_size, dtype=torch.bool)
    for row, length in zip(table, shape.lengths, strict=True):
        used[(row[:, None] * block_size + torch.arange(block_size)).flatten()[:length]] = True
        row[-(-length // block_size) :] = -(10**6)
    for cache in caches:
        cache.flatten(0, 1)[~used] = torch.nan
    query = random(sum(shape.queries) + shape.behind, shape.heads, shape.size, dtype=dtype)
    lengths = torch.tensor(shape.lengths, dtype=torch.int32)
    starts = torch.tensor([0, *shape.queries]).cumsum(0)
    return [query, *caches, table, lengths, starts, scale * shape.size**-0.5]


def cases(dtype: torch.dtype) -> Iterator[list]:
    for shape in SHAPES:
        for window, cap in OPTIONS:
            yield [*arguments(shape, dtype), window, cap]
    # Scores of some thousands: their exponentials are beyond float32.
    yield [*arguments(Shape((70,), (3,)), dtype, 1000.0), None, None]


def one_by_one(args: list, dtype: torch.dtype, fault: str = "") -> Tensor:
    """One sequence, token and group of heads after the other, in `dtype`; the result is not rounded."""
    query, *caches, table, lengths, starts, scale, window, cap = args
    heads, size, kv_heads = *query.shape[1:], caches[0].shape[2]
    result = torch.zeros(query.shape, dtype=dtype)
    for row, length, start, end in zip(table, lengths.tolist(), starts.tolist(), starts.tolist()[1:], strict=False):
        blocks = row.clamp(min=0)
        if fault == "blocks in the order of memory":
            blocks = blocks.sort().values
        key, value = (cache[blocks].flatten(0, 1).to(dtype).transpose(0, 1) for cache in caches)
        for token in range(start, end):
            behind = length - end + token + 1
            behind += {"one key too many": 1, "one key too few": -1}.get(fault, 0)
            if fault == "causal from the front":
                behind = token - start + 1
            first = 0 if window is None else max(0, behind - window - (fault == "window too wide"))
            if behind <= first:
                continue
            rows = query[token].to(dtype)
            if fault == "another head of keys":
                rows = rows.unflatten(0, (-1, kv_heads)).transpose(0, 1).flatten(0, 1)
            rows = rows.reshape(kv_heads, heads // kv_heads, size)
            scores = rows @ key[:, first:behind].mT * scale
            if fault == "not scaled":
                scores = scores / scale
            if cap is not None and fault != "no soft cap":
                scores = torch.tanh(scores / cap) * cap
            greatest = scores.amax(-1, keepdim=True) * (fault != "no maximum subtracted")
            weights = (scores - greatest).exp()
            total = weights.sum(-1, keepdim=True)
            if fault == "sum not corrected":
                total = total * (1 + 1e-3)
            if fault == "weights in bfloat16":
                weights = weights.bfloat16().to(dtype)
            attended = weights @ value[:, first:behind] / total
            if fault == "another head of keys":
                attended = attended.reshape(kv_heads, -1, size).transpose(0, 1)
            result[token] = attended.reshape(heads, size)
    if fault == "tokens of no sequence left":
        result[starts[-1] :] = 1
    return result


def greatest_product(args: list) -> float:
    """The greatest sum of absolute products of a query and a key, scaled."""
    query, key_cache = (args[index].nan_to_num(0).double().abs() for index in (0, 1))
    if 0 in (*query.shape, *key_cache.shape):
        return 0.0
    groups = query.shape[1] // key_cache.shape[2]
    keys = key_cache.flatten(0, 1).repeat_interleave(groups, 1)
    return float(torch.einsum("thd,jhd->thj", query, keys).max()) * args[6]


def weight_error(args: list, chain: float) -> float:
    """Relative error of exp(score - greatest), where a product is a chain of that many roundings.

    The product, the scale and, with a cap, the quotient round relatively to `greatest_product`, which bounds scores;
    tanh is within 2 ulp, 4 roundoffs, and is multiplied by the cap. The difference of two scores rounds once. exp is
    within 1 ulp.
    """
    scores, cap = greatest_product(args), args[8]
    capped = scores if cap is None else min(scores, cap)
    error = (chain + 1) * scores + 2 * capped + 2
    return (error if cap is None else error + scores + 5 * cap) * ROUNDOFF


def result_error(args: list, chain: float, tiles: float) -> float:
    """How far a float32 result may be from the exact one, for products of chains of `chain` roundings.

    A weighted mean moves by twice the relative error of its weights, times the greatest value. Beside that, the two
    sums round once for each key, and products, quotient and normalisation once each. Where sums are corrected as
    greater scores come, the corrections' exponents add up to at most the range of the scores, and each tile adds 2
    roundoffs of exp and a rounding.
    """
    scores, cap = greatest_product(args), args[8]
    span = 2 * (scores if cap is None else min(scores, cap))
    keys = float(args[4].max()) if args[4].numel() else 0.0
    corrections = (span + 3 * tiles) * ROUNDOFF if tiles else 0.0
    greatest_value = float(args[2].nan_to_num(0).double().abs().max()) if args[2].numel() else 0.0
    return (2 * (weight_error(args, chain) + corrections) + (2 * keys + 3) * ROUNDOFF) * greatest_value


def kernel_error(args: list) -> float:
    """For vectors of 4 or more: 2 of them gather a product's sum."""
    longest = float(args[4].max()) if args[4].numel() else 0.0
    return result_error(args, args[0].shape[2] / 8 + 4, longest / TILE + 1)


def native_error(args: list) -> float:
    return result_error(args, args[0].shape[2], 0)


def assert_close(got: Tensor, want: Tensor, error: float) -> None:
    """Compare a result with an unrounded one; one of 16 bits may be half a unit farther away."""
    half_unit = 0.0 if got.dtype is torch.float32 else torch.finfo(got.dtype).eps / 2
    tiny = torch.finfo(got.dtype).smallest_normal * half_unit
    torch.testing.assert_close(got.double(), want.double(), rtol=half_unit, atol=error * (1 + half_unit) + tiny)


def check(implementation, dtype: torch.dtype) -> None:
    """AssertionError where an implementation is too far from the native definition or from float64."""
    for args in cases(dtype):
        got = implementation(*args)
        assert (got.dtype, got.shape, got.is_contiguous()) == (dtype, args[0].shape, True)
        wide = [part.float() if isinstance(part, Tensor) and part.is_floating_point() else part for part in args]
        assert_close(got, OP.native(*wide), kernel_error(args) + native_error(args))
        assert_close(got, one_by_one(args, torch.float64), kernel_error(args))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_kernel_is_within_its_bound(dtype: torch.dtype):
    impl = OP.impls[PROVIDER]
    assert all(impl.rejection(args) is None for args in cases(dtype))
    check(impl.impl_fn, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_native_definition_is_within_its_bound(dtype: torch.dtype):
    for args in cases(dtype):
        assert_close(OP.native(*args), one_by_one(args, torch.float64), native_error(args))


def test_the_bound_is_small():
    errors = [kernel_error(args) + native_error(args) for args in list(cases(torch.float32))[:-1]]
    assert max(errors) < 2e-3
    # The check of the largest case, and what the kernel makes of it.
    args = [*arguments(SHAPES[7], torch.float32), None, None]
    got = (OP.impls[PROVIDER].impl_fn(*args).double() - one_by_one(args, torch.float64)).abs().max()
    assert got < 2e-6


FAULTS = [
    "one key too many",
    "one key too few",
    "causal from the front",
    "window too wide",
    "another head of keys",
    "blocks in the order of memory",
    "not scaled",
    "no soft cap",
    "no maximum subtracted",
    "sum not corrected",
    "weights in bfloat16",
    "tokens of no sequence left",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str):
    with pytest.raises(AssertionError):
        check(lambda *args: one_by_one([*args], torch.float32, fault), torch.float32)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_without_a_fault_the_same_implementation_passes(dtype: torch.dtype):
    check(lambda *args: one_by_one([*args], torch.float32).to(args[0].dtype), dtype)


LAYOUTS = {
    # name: (of [2, blocks, block_size, kv_heads, head_size] windows onto it as it is laid out, whether they are taken)
    "a layer of a stacked cache": (lambda x: torch.stack((x * 0, x, x * 0))[1].unbind(0), True),
    "block by block": (lambda x: x.movedim(0, 1).contiguous().unbind(1), True),
    "row by row": (lambda x: torch.cat(x.unbind(0), -1).chunk(2, -1), True),
    "heads before offsets": (lambda x: x.transpose(2, 3).contiguous().transpose(2, 3).unbind(0), True),
    "elements by turns": (lambda x: torch.stack(x.unbind(0), -1).unbind(-1), False),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_caches_and_queries_of_any_strides(layout: str, dtype: torch.dtype):
    windows, taken = LAYOUTS[layout]
    query, key, value, *others = arguments(SHAPES[1], dtype)
    fn = OP.impls[PROVIDER].impl_fn
    want = fn(query, key, value, *others)
    keys, values = windows(torch.stack((key, value)))
    piece = torch.cat((query.flatten(1), query.flatten(1) * 0), 1)[:, : query[0].numel()].view(query.shape)
    assert (OP.select((piece, keys, values, *others), [PROVIDER])[0].provider == PROVIDER) == taken
    assert torch.equal(fn(piece, keys, values, *others), want)
    turned = query.transpose(0, 2).contiguous().transpose(0, 2)
    assert OP.select((turned, keys, values, *others), [PROVIDER])[0].provider == "native"
    assert torch.equal(fn(turned, keys, values, *others), want)


def test_the_number_of_threads_does_not_matter():
    args = arguments(SHAPES[7], torch.bfloat16)
    threads = torch.get_num_threads()
    results: list[Tensor] = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(OP.impls[PROVIDER].impl_fn(*args))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE = arguments(SHAPES[1], torch.float32)
LEFT: list[tuple[str, tuple[object, ...]]] = [
    ("float64", (QUERY.double(), KEY.double(), VALUE.double(), TABLE, LENGTHS, STARTS, SCALE)),
    ("a cache of another dtype", (QUERY, KEY, VALUE.half(), TABLE, LENGTHS, STARTS, SCALE)),
    ("another device", (QUERY, KEY.to("meta"), VALUE, TABLE, LENGTHS, STARTS, SCALE)),
    ("caches of different shapes", (QUERY, KEY, VALUE[1:], TABLE, LENGTHS, STARTS, SCALE)),
    ("heads that do not divide", (QUERY[:, :3], KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE)),
    ("another size of a head", (QUERY[..., :4], KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE)),
    ("int16 blocks", (QUERY, KEY, VALUE, TABLE.short(), LENGTHS, STARTS, SCALE)),
    ("a row too few", (QUERY, KEY, VALUE, TABLE[1:], LENGTHS, STARTS, SCALE)),
    ("a start too few", (QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS[1:], SCALE)),
    ("no window", (QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE, 0)),
    ("no cap", (QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE, None, 0.0)),
]


@pytest.mark.parametrize(("what", "args"), LEFT, ids=lambda part: part if type(part) is str else "")
def test_arguments_that_are_left_to_the_native_definition(what: str, args: tuple[object, ...]):
    assert OP.select(args, [PROVIDER])[0].provider == "native"


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({3: TABLE * 0 + 10**6}, IndexError, "block 1000000 of sequence 0 is not in the cache, which has "),
        ({3: TABLE * 0 - 1}, IndexError, "block -1 of sequence 0 is not in the cache"),
        ({4: LENGTHS + 50}, IndexError, "sequence 0 has 57 tokens, but its row of block_table has place for 40"),
        ({5: STARTS + 1}, IndexError, "query_start must begin with 0, got 1"),
        ({5: STARTS.flip(0) * 0 + torch.tensor([0, 3, 2, 9])}, IndexError, "must not decrease.*sequence 1 has 3 to 2"),
        ({5: torch.tensor([0, 7, 8, 10])}, IndexError, "nor exceed the 9 tokens of query; sequence 2 has 8 to 10"),
        ({2: VALUE.half()}, RuntimeError, "caches must be .*of its dtype.*got Float of shape.* and Half"),
        ({0: QUERY[:, :3]}, RuntimeError, "with a kv_heads that divides heads; got Float"),
        ({3: TABLE.short()}, RuntimeError, "block_table must be int64 or int32 with 2 dimensions.*got Short"),
        ({5: STARTS[1:]}, RuntimeError, "query_start 4 elements; got shapes"),
        ({7: 0}, RuntimeError, "sliding_window and soft_cap must be positive, got 0"),
    ],
    ids=lambda part: part[:20] if type(part) is str else "",
)
def test_errors_of_the_operator(changed: dict[int, object], kind: type[Exception], message: str):
    args = [QUERY, KEY, VALUE, TABLE, LENGTHS, STARTS, SCALE, None, None]
    for index, part in changed.items():
        args[index] = part
    with pytest.raises(kind, match=rf"vllm_ir_cpu.paged_attention: .*{message}"):
        torch.ops.vllm_ir_cpu.paged_attention(*args)
