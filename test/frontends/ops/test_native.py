"""The native definitions, bit for bit, and the arguments they refuse."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import ops

EPSILON = 1e-5
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def normalized(total: Tensor, dtype: torch.dtype, variance_size: int) -> Tensor:
    """One row after the other, each step spelled out."""
    assert total.dtype is torch.float32
    rows: list[Tensor] = []
    for row in total.reshape(-1, total.shape[-1]):
        square = row[:variance_size] * row[:variance_size]
        scale = torch.rsqrt(torch.mean(square, dtype=torch.float32) + torch.tensor(EPSILON))
        rows.append((row * scale).to(dtype))
    return torch.stack(rows).reshape(total.shape)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("weight_dtype", [None, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("variance_size", [None, 1, 5, 16])
def test_rms_norm_bits(dtype: torch.dtype, weight_dtype: torch.dtype | None, variance_size: int | None) -> None:
    x = random(2, 3, 16, dtype=dtype)
    weight = None if weight_dtype is None else random(16, dtype=weight_dtype, seed=1)
    got = ops.rms_norm(x, weight, EPSILON, variance_size)
    want = normalized(x.to(torch.float32), dtype, variance_size or 16)
    if weight is not None:
        want = torch.mul(weight, want)
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_a_float32_weight_promotes_the_result_and_rounding_comes_first() -> None:
    x, weight = random(4, 16, dtype=torch.bfloat16), random(16, seed=1)
    got = ops.rms_norm(x, weight, EPSILON)
    assert got.dtype is torch.float32
    late_rounding = (normalized(x.float(), torch.float32, 16) * weight).to(torch.bfloat16).float()
    assert not torch.equal(got, late_rounding)
    assert torch.equal(got, normalized(x.float(), torch.bfloat16, 16).float() * weight)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("variance_size", [None, 7])
@pytest.mark.parametrize("with_weight", [True, False])
def test_fused_add_rms_norm_bits(dtype: torch.dtype, variance_size: int | None, with_weight: bool) -> None:
    x, residual = random(5, 16, dtype=dtype), random(5, 16, dtype=dtype, seed=1)
    weight = random(16, dtype=dtype, seed=2) if with_weight else None
    normed, new_residual = ops.fused_add_rms_norm(x, residual, weight, EPSILON, variance_size)
    total = torch.add(residual.to(torch.float32), x.to(torch.float32))
    want = normalized(total, dtype, variance_size or 16)
    torch.testing.assert_close(normed, want if weight is None else want * weight, rtol=0, atol=0)
    torch.testing.assert_close(new_residual, total.to(dtype), rtol=0, atol=0)


def test_the_fused_norm_sees_the_sum_before_it_is_rounded() -> None:
    x, residual = random(64, 16, dtype=torch.bfloat16), random(64, 16, dtype=torch.bfloat16, seed=1)
    normed, new_residual = ops.fused_add_rms_norm(x, residual, None, EPSILON)
    assert not torch.equal(normed, ops.rms_norm(new_residual, None, EPSILON))


def test_rms_norm_against_exact_arithmetic() -> None:
    x = random(8, 33)
    exact = x.double().numpy()
    exact = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + EPSILON)
    error = np.abs(ops.rms_norm(x, None, EPSILON).double().numpy() - exact)
    # In units of roundoff: a square and n sums and divisions, halved by the root; add, rsqrt (2 ulp), and the product.
    assert (error <= (33 / 2 + 6) * 2.0**-24 * np.abs(exact)).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_silu_and_mul_bits(dtype: torch.dtype) -> None:
    x = random(3, 4, 10, dtype=dtype)
    gate, up = x.chunk(2, dim=-1)
    torch.testing.assert_close(ops.silu_and_mul(x), torch.nn.SiLU()(gate) * up, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_and_mul_bits(dtype: torch.dtype, approximate: str) -> None:
    x = random(3, 4, 10, dtype=dtype)
    gate, up = x.chunk(2, dim=-1)
    want = torch.nn.GELU(approximate)(gate) * up
    torch.testing.assert_close(ops.gelu_and_mul(x, approximate), want, rtol=0, atol=0)
    if approximate == "none":
        assert torch.equal(ops.gelu_and_mul(x), want)
        exact = [0.5 * float(g) * math.erfc(-float(g) / math.sqrt(2)) for g in gate.flatten()]
        tolerance = 4 * torch.finfo(torch.float32 if dtype is torch.float64 else dtype).eps
        want = torch.tensor(exact, dtype=torch.float64) * up.double().flatten()
        torch.testing.assert_close(ops.gelu_and_mul(x).double().flatten(), want, rtol=tolerance, atol=tolerance)


def rotated(x: np.ndarray, positions: list[int], table: np.ndarray, head_size: int, is_neox: bool) -> np.ndarray:
    """Rotary embedding of float32 numbers, pair by pair."""
    half = table.shape[1] // 2
    heads = x.reshape(len(positions), -1, head_size)
    out = heads.copy()
    for token, position in enumerate(positions):
        for i in range(half):
            first, second = (i, i + half) if is_neox else (2 * i, 2 * i + 1)
            cos, sin = table[position, i], table[position, half + i]
            left, right = heads[token, :, first], heads[token, :, second]
            out[token, :, first] = left * cos - right * sin
            out[token, :, second] = right * cos + left * sin
    return out.reshape(x.shape)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("rotary_dim", [4, 8])
@pytest.mark.parametrize("shape", [(6, 32), (6, 4, 8), (2, 3, 32)], ids=str)
def test_rotary_embedding_bits(is_neox: bool, rotary_dim: int, shape: tuple[int, ...]) -> None:
    query, key, table = random(*shape), random(6, 8, seed=1), random(10, rotary_dim, seed=2)
    numbers = [3, 0, 9, 4, 4, 1]
    positions = torch.tensor(numbers).reshape(shape[: len(shape) - 1] if len(shape) == 3 and shape[0] == 2 else (6,))
    for given in (None, rotary_dim):
        turned_query, turned_key = ops.rotary_embedding(positions, query, key, 8, table, is_neox, given)
        for got, x in ((turned_query, query), (turned_key, key)):
            want = rotated(x.numpy(), numbers, table.numpy(), 8, is_neox)
            assert got.shape == x.shape
            assert np.array_equal(got.numpy(), want)


def test_rotary_embedding_computes_in_the_dtype_of_what_it_turns() -> None:
    query, key, table = random(6, 16, dtype=torch.bfloat16), random(6, 8), random(10, 8, seed=2)
    turned_query, turned_key = ops.rotary_embedding(torch.arange(6), query, key, 8, table, True)
    assert (turned_query.dtype, turned_key.dtype) == (torch.bfloat16, torch.float32)
    rounded, _ = ops.rotary_embedding(torch.arange(6), query, key, 8, table.bfloat16(), True)
    assert torch.equal(turned_query, rounded)


def test_rotary_embedding_takes_pieces_of_a_projection() -> None:
    projected = random(6, 40)
    query, key, _ = projected.split([16, 16, 8], dim=-1)
    got = ops.rotary_embedding(torch.arange(6), query, key, 8, random(10, 8), True)
    want = ops.rotary_embedding(torch.arange(6), query.contiguous(), key.contiguous(), 8, random(10, 8), True)
    assert all(map(torch.equal, got, want))


TABLE = torch.zeros(10, 8)
REFUSED = [
    (lambda: ops.rms_norm(random(2, 8), None, EPSILON, 0), r"rms_norm: variance_size 0 is not in \[1, 8\]"),
    (lambda: ops.rms_norm(random(2, 8), None, EPSILON, 9), r"rms_norm: variance_size 9 is not in \[1, 8\]"),
    (lambda: ops.rms_norm(random(2, 8), random(7), EPSILON), r"weight must have shape \[8\].*got \[7\]"),
    (lambda: ops.rms_norm(random(2, 8), random(1, 8), EPSILON), r"weight must have shape \[8\].*got \[1, 8\]"),
    (lambda: ops.rms_norm(torch.arange(8), None, EPSILON), r"x must be floating.*got torch.int64 of shape \[8\]"),
    (lambda: ops.rms_norm(torch.tensor(1.0), None, EPSILON), r"x must be floating with a last dimension.*shape \[\]"),
    (
        lambda: ops.fused_add_rms_norm(random(2, 8), random(1, 8), None, EPSILON),
        r"fused_add_rms_norm: x_residual must be floating of shape \[2, 8\].*got torch.float32 of shape \[1, 8\]",
    ),
    (
        lambda: ops.fused_add_rms_norm(random(2, 8), random(2, 8), None, EPSILON, 9),
        r"fused_add_rms_norm: variance_size 9",
    ),
    (lambda: ops.silu_and_mul(random(2, 7)), r"silu_and_mul: x must be floating with an even last.*\[2, 7\]"),
    (lambda: ops.gelu_and_mul(random(2, 7)), r"gelu_and_mul: x must be floating with an even last.*\[2, 7\]"),
    (lambda: ops.gelu_and_mul(torch.arange(8)), r"gelu_and_mul: x must be floating .*torch.int64 of shape \[8\]"),
    (lambda: ops.gelu_and_mul(random(2, 8), "erf"), r"gelu_and_mul: approximate must be 'none' or 'tanh', got 'erf'"),
    (
        lambda: ops.rotary_embedding(torch.arange(6).float(), random(6, 8), random(6, 8), 8, TABLE, True),
        r"positions must be integers, got torch.float32",
    ),
    (
        lambda: ops.rotary_embedding(torch.arange(6), random(6, 8), random(6, 8), 8, TABLE[:, :3], True),
        r"even rotary_dim of at most head_size 8, got \[10, 3\]",
    ),
    (
        lambda: ops.rotary_embedding(torch.arange(6), random(6, 8), random(6, 8), 4, TABLE, True),
        r"at most head_size 4, got \[10, 8\]",
    ),
    (
        lambda: ops.rotary_embedding(torch.arange(6), random(6, 8), random(6, 8), 8, TABLE, True, 4),
        r"rotary_dim 4 is not the number of columns of cos_sin_cache, 8",
    ),
    (
        lambda: ops.rotary_embedding(torch.arange(6), random(6, 8), random(6, 12), 8, TABLE, True),
        r"key must be floating and its last dimension a multiple of head_size 8.*\[6, 12\]",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused_arguments(call, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert str(caught.value).startswith("vllm_ir.")
    assert "\n" not in str(caught.value)
