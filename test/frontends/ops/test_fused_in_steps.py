"""Fused ops that have no kernel yet: their native definitions are the parts, one after the other, bit for bit."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vllm_ir as ir

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
ops = ir.ops
by_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for left, right in zip(got, want, strict=True):
        assert (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
        assert torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))


def pairs(dtype: torch.dtype, columns: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Two tensors of one shape: of two dimensions and three, with gaps between rows, and of unusual numbers."""
    for shape in ((5, columns), (2, 3, columns)):
        yield random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=1)
    yield random(4, 2 * columns, dtype=dtype)[:, columns:], random(4, columns + 3, dtype=dtype, seed=1)[:, :columns]
    unusual = random(4, columns, dtype=dtype)
    unusual[0], unusual[1, 2], unusual[2, 3], unusual[3, 1] = -0.0, float("inf"), float("nan"), torch.finfo(dtype).max
    yield unusual, random(4, columns, dtype=dtype, seed=1)


def weights(dtype: torch.dtype, columns: int) -> Iterator[Tensor | None]:
    """None, one of the dtype, and one that promotes."""
    yield None
    yield random(columns, dtype=dtype, seed=2)
    yield random(columns, seed=2)


SCALE, OTHER_SCALE = torch.tensor([0.013]), torch.tensor([0.002])


@by_dtype
def test_two_quantisations_of_a_norm(dtype: torch.dtype) -> None:
    for x, residual in pairs(dtype, 48):
        for weight in weights(dtype, 48):
            for measured in (None, 24):
                tail = (1e-5, measured)
                normed = ops.rms_norm(x, weight, *tail)
                added, total = ops.fused_add_rms_norm(x, residual, weight, *tail)
                groups = (16, 8, True, False, 1e-10, 0.25)
                first, second = groups[::2], groups[1::2]
                for rows, name, rest in (
                    ((x,), "rms_norm", ()),
                    ((x, residual), "fused_add_rms_norm", (total,)),
                ):
                    source = added if rest else normed
                    got = ops[f"{name}_double_static_fp8_quant"](*rows, weight, SCALE, OTHER_SCALE, *tail)
                    quantized = (ops.static_scaled_fp8_quant(source, scale) for scale in (SCALE, OTHER_SCALE))
                    assert_same(got, (*quantized, *rest))
                    got = ops[f"{name}_double_per_token_group_fp8_quant"](*rows, weight, 1e-5, *groups, measured)
                    quantized = (ops.per_token_group_fp8_quant(source, *group) for group in (first, second))
                    assert_same(got, (*(tensor for pair in quantized for tensor in pair), *rest))


@by_dtype
def test_a_padded_norm(dtype: torch.dtype) -> None:
    for x, residual in pairs(dtype, 20):
        for weight in weights(dtype, 20):
            for padding in (0, 1, 44):
                normed, total = ops.fused_add_rms_norm(x, residual, weight, 1e-5, 10)
                padded, new = ops.fused_add_rms_norm_pad(x, residual, weight, 1e-5, padding, 10)
                assert_same((padded, new), (F.pad(normed, (0, padding)), total))
                assert not padded[..., 20:].any()


@by_dtype
def test_a_gated_norm(dtype: torch.dtype) -> None:
    for x, gate in pairs(dtype, 32):
        for weight in weights(dtype, 32):
            for gates in (gate, gate.float()):
                normed = ops.rms_norm(x, weight, 1e-6)
                want = (normed.float() * F.silu(gates.float())).to(dtype)
                assert_same((ops.gated_rms_norm(x, gates, weight, 1e-6),), (want,))
                got = ops.gated_rms_norm_static_fp8_quant(x, gates, weight, SCALE, 1e-6)
                assert_same((got,), (ops.static_scaled_fp8_quant(want, SCALE),))
                got = ops.gated_rms_norm_per_token_group_fp8_quant(x, gates, weight, 1e-6, 8, True, 0.25)
                assert_same(got, ops.per_token_group_fp8_quant(want, 8, True, 0.25))


def test_the_gate_comes_behind_the_norm() -> None:
    """In numbers: the root of the mean of squares of the row is 1, and `silu(1)` is 1 / (1 + 1 / e)."""
    gated = ops.gated_rms_norm(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 0.0]]), None, 0.0)
    torch.testing.assert_close(gated, torch.tensor([[0.731058578, 0.0]]))


@by_dtype
def test_two_norms_and_a_quantisation(dtype: torch.dtype) -> None:
    for (x, _), (y, _) in zip(pairs(dtype, 24), pairs(dtype, 16), strict=True):
        for x_weight, y_weight in zip(weights(dtype, 24), reversed(list(weights(dtype, 16))), strict=True):
            inputs = (x, y, x_weight, y_weight, 1e-6)
            first, second = ops.dual_rms_norm(*inputs)
            for bound in (None, torch.tensor([1.25])):
                want = (*ops.dynamic_per_token_scaled_fp8_quant(first, bound), second)
                assert_same(ops.dual_rms_norm_dynamic_per_token_fp8_quant(*inputs, bound), want)
            for group in ((8, False, 1e-10), (12, True, 0.25)):
                want = (*ops.per_token_group_fp8_quant(first, *group), second)
                assert_same(ops.dual_rms_norm_per_token_group_fp8_quant(*inputs, *group), want)


HEADS, KV_HEADS, SIZE = 4, 2, 16
SLOTS = torch.tensor([5, -1, 23, 5, 0, 11, 5])
POSITIONS = torch.tensor([3, 0, 49, 7, 7, 12, 1])


@by_dtype
def test_rotation_with_the_cache_and_quantised_queries(dtype: torch.dtype) -> None:
    key_cache, value_cache = random(6, 2, 4, KV_HEADS, SIZE, dtype=dtype, seed=6).unbind(1)
    for qkv in (random(7, 128, dtype=dtype), random(7, 131, dtype=dtype)[:, :128]):
        pieces = qkv.split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
        for columns, is_neox in ((SIZE, True), (SIZE // 2, False)):
            rest = (key_cache, value_cache, SLOTS, SIZE, random(50, columns, seed=5), is_neox)
            for inputs in (pieces, [piece.unflatten(1, (-1, SIZE)) for piece in pieces]):
                query, *others = ops.rope_and_cache(POSITIONS, *inputs, *rest)
                want = (ops.static_scaled_fp8_quant(query, SCALE), *others)
                assert_same(ops.rope_and_cache_static_fp8_quant(POSITIONS, *inputs, *rest, SCALE), want)
            for pair in ((None, None), (random(SIZE, dtype=dtype), random(SIZE, dtype=dtype, seed=1))):
                given = (qkv, POSITIONS, *pair, 1e-6, HEADS, KV_HEADS, *rest[3:], *rest[:3])
                query, *others = ops.qk_norm_rope_and_cache(*given)
                want = (ops.static_scaled_fp8_quant(query, SCALE), *others)
                assert_same(ops.qk_norm_rope_and_cache_static_fp8_quant(*given, SCALE), want)


X = random(4, 32)
CACHES = tuple(random(3, 4, KV_HEADS, SIZE) for _ in range(2))
ROTATED = (POSITIONS, random(7, 64), random(7, 32), random(7, 32), *CACHES, SLOTS.clamp(max=11), SIZE, random(50, 16))
REFUSED: list[tuple[str, tuple[object, ...], str]] = [
    ("rms_norm_double_static_fp8_quant", (X, None, SCALE, SCALE.half(), 1e-6), "other_scale must be float32.*float16"),
    ("rms_norm_double_per_token_group_fp8_quant", (X, None, 1e-6, 8, 5), r"group_size 5, got shape \[4, 32\]"),
    (
        "fused_add_rms_norm_double_per_token_group_fp8_quant",
        (X, X, None, 1e-6, 8, 4, False, False, 1e-10, 0.0),
        "other_quant_epsilon must be positive, got 0.0",
    ),
    ("fused_add_rms_norm_double_static_fp8_quant", (X, X[:2], None, SCALE, SCALE, 1e-6), r"x_residual must be.*\[2, 3"),
    ("fused_add_rms_norm_pad", (X, X, None, 1e-6, -1), "padding must not be negative, got -1"),
    ("fused_add_rms_norm_pad", (X, X.int(), None, 1e-6, 1), "x_residual must be floating.*got torch.int32"),
    ("gated_rms_norm", (X, X[:, :31], None, 1e-6), r"gate must be floating of shape \[4, 32\].*\[4, 31\]"),
    ("gated_rms_norm", (X, X.int(), None, 1e-6), "gate must be floating.*got torch.int32"),
    ("gated_rms_norm_static_fp8_quant", (X, X, X[0, :3], SCALE, 1e-6), r"weight must have shape \[32\].*got \[3\]"),
    ("gated_rms_norm_per_token_group_fp8_quant", (X, X, None, 1e-6, 5), r"group_size 5, got shape \[4, 32\]"),
    ("dual_rms_norm_dynamic_per_token_fp8_quant", (X, X.int(), None, None, 1e-6), "y must be floating.*torch.int32"),
    ("dual_rms_norm_per_token_group_fp8_quant", (X, X, None, None, 1e-6, 0), "group_size must be positive, got 0"),
    ("rope_and_cache_static_fp8_quant", (*ROTATED, True, X), r"query_scale must be float32.*shape \[4, 32\]"),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED, ids=lambda part: part if type(part) is str else "")
def test_refused_arguments(name: str, args: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^vllm_ir.{name}: .*{message}") as caught:
        ops[name](*args)
    assert "\n" not in str(caught.value)


def test_what_may_be_given_away() -> None:
    assert ops.gated_rms_norm.reuses == ("x",)
    assert ops.fused_add_rms_norm_pad.reuses == (None, "x_residual")
    assert ops.fused_add_rms_norm_double_static_fp8_quant.reuses == (None, None, "x_residual")
    assert ops.dual_rms_norm_per_token_group_fp8_quant.reuses == (None, None, "y")
    assert ops.rope_and_cache_static_fp8_quant.reuses == (None, "key", "key_cache", "value_cache")
    assert ops.qk_norm_rope_and_cache_static_fp8_quant.reuses == (None, None, None, "key_cache", "value_cache")
