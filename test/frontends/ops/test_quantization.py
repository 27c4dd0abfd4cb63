"""Native definitions of quantisation: bits, special numbers, and the arguments they refuse."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import ops

FP8 = torch.float8_e4m3fn
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
MOST, INFINITY, NAN = 448.0, float("inf"), float("nan")
STATIC = ("static_scaled_fp8_quant", "static_scaled_int8_quant")
TOKEN = ("dynamic_per_token_scaled_fp8_quant", "dynamic_per_token_scaled_int8_quant")
GROUP = ("per_token_group_fp8_quant", "per_token_group_int8_quant")


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def quantized(row: np.ndarray, scale: np.float32, name: str) -> np.ndarray:
    """A row, one element after the other, each step spelled out."""
    factor = np.float32(1) / scale
    if "int8" in name:
        return np.array([max(-128, min(127, round(float(np.float32(x) * factor)))) for x in row], dtype=np.int8)
    kept = [max(np.float32(-MOST), min(np.float32(MOST), np.float32(x) * factor)) for x in row]
    return np.array(kept, dtype=np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.int8)


def codes(result: Tensor) -> np.ndarray:
    return result.view(torch.int8).numpy()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", STATIC)
def test_static_bits(name: str, dtype: torch.dtype) -> None:
    x, scale = 2 * random(3, 40, dtype=dtype), torch.tensor([0.0031])
    rows = x.float().numpy()
    want = np.stack([quantized(row, np.float32(0.0031), name) for row in rows])
    assert np.array_equal(codes(ops[name](x, scale)), want)
    for one in (scale[0], scale.reshape(1, 1, 1)):
        assert np.array_equal(codes(ops[name](x, one)), want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", TOKEN)
def test_per_token_bits(name: str, dtype: torch.dtype) -> None:
    x = random(2, 3, 40, dtype=dtype) * torch.tensor([[1.0], [1e-7], [1e3]]).to(dtype)
    result, scales = ops[name](x)
    rows = (x.float().reshape(6, 40).numpy(), codes(result).reshape(6, 40), scales.flatten())
    assert (scales.shape, scales.dtype) == ((2, 3, 1), torch.float32)
    for row, got, scale in zip(*rows, strict=True):
        want = np.abs(row).max() / np.float32(127 if "int8" in name else MOST)
        if "fp8" in name:
            want = max(want, np.float32(1 / (448 * 512)))
        assert scale.numpy() == want
        assert np.array_equal(got, quantized(row, want, name))


def test_an_upper_bound_of_scales() -> None:
    x = torch.tensor([[1.0, -8.0], [0.5, 0.25], [0.0, 0.0]])
    result, scales = ops.dynamic_per_token_scaled_fp8_quant(x, torch.tensor([2.0]))
    assert torch.equal(scales, torch.tensor([[2 / MOST], [0.5 / MOST], [1 / (MOST * 512)]]))
    assert result.float().tolist() == [[224, -MOST], [MOST, 224], [0, 0]]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", GROUP)
def test_per_group_bits(name: str, dtype: torch.dtype) -> None:
    x = random(2, 3, 48, dtype=dtype)
    x[0, 0, :8] = 0
    for size in (1, 8, 48):
        result, scales = ops[name](x, size, epsilon=1e-3)
        assert (result.shape, scales.shape, scales.dtype) == (x.shape, (2, 3, 48 // size), torch.float32)
        rows = (x.float().reshape(-1, size).numpy(), codes(result).reshape(-1, size), scales.flatten())
        for row, got, scale in zip(*rows, strict=True):
            want = max(np.abs(row).max(), np.float32(1e-3)) / np.float32(127 if "int8" in name else MOST)
            assert scale.numpy() == want
            assert np.array_equal(got, quantized(row, want, name))


def test_scales_that_are_powers_of_two() -> None:
    halves = [3.5, math.nextafter(3.5, 0), np.nextafter(np.float32(3.5), np.float32(4)), 448.0, 1e-30, 3e38]
    x = torch.tensor([[0.0, -most] for most in halves])
    result, scales = ops.per_token_group_fp8_quant(x, 2, True, 1e-30)
    plain = ops.per_token_group_fp8_quant(x, 2, False, 1e-30)[1]
    want = [2.0 ** math.ceil(math.log2(float(scale))) for scale in plain]
    assert scales.flatten().tolist() == want
    assert want[0] == want[1] == want[2] / 2 == 2.0**-7
    assert np.array_equal(
        codes(result),
        np.stack([quantized(row, np.float32(power), "fp8") for row, power in zip(x.numpy(), want, strict=True)]),
    )
    # The least normal number, for what is less.
    assert ops.per_token_group_fp8_quant(torch.zeros(1, 2), 2, True, 1e-40)[1].item() == 2.0**-126


def test_ties_go_to_even() -> None:
    one = torch.ones(())
    whole = ops.static_scaled_int8_quant(torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, -128.5]), one)
    assert whole.tolist() == [0, 2, 2, 0, -2, 126, 127, -128]
    ties = torch.tensor([17.0, 19.0, -17.0, 2.0**-10, 3 * 2.0**-10, 432.0, 464.0, 15.5 * 2.0**-7])
    got = ops.static_scaled_fp8_quant(ties, one).float()
    assert got.tolist() == [16, 20, -16, 0, 2.0**-8, 448, 448, 2.0**-3]


def test_numbers_out_of_range_infinities_and_what_is_none() -> None:
    x, one = torch.tensor([1e9, -1e9, INFINITY, -INFINITY, NAN, -0.0]), torch.ones(1)
    fp8 = ops.static_scaled_fp8_quant(x, one).float()
    assert fp8[:4].tolist() == [MOST, -MOST, MOST, -MOST]
    assert fp8[4].isnan()
    assert fp8[5].signbit()
    assert ops.static_scaled_int8_quant(x, one).tolist() == [127, -128, 127, -128, 0, 0]


@pytest.mark.parametrize("name", [*TOKEN, *GROUP])
def test_an_infinite_or_missing_maximum_decides_about_its_row(name: str) -> None:
    x = torch.tensor([[1.0, NAN, 2.0, 0.0], [1.0, -INFINITY, 0.0, 3.0], [1.0, 2.0, 3.0, 4.0]])
    result, scales = ops[name](x, *([4] if name in GROUP else []))
    assert scales[0].isnan()
    assert scales[1].isinf()
    assert scales[2] == torch.tensor(4.0) / (127 if "int8" in name else MOST)
    values = result.float()
    if "int8" in name:
        assert values[:2].tolist() == [[0] * 4, [0] * 4]
    else:
        assert values[0].isnan().all()
        assert values[1].isnan().tolist() == [False, True, False, False]
    # Rows of zeros are zeros, whatever their scale.
    assert not ops[name](torch.zeros(2, 4), *([4] if name in GROUP else []))[0].float().any()


SCALE = torch.ones(1)
REFUSED = [
    *(
        case
        for name in STATIC
        for case in (
            (
                lambda n=name: ops[n](torch.arange(8), SCALE),
                rf"{name}: x must be floating, got torch.int64 of shape \[8\]",
            ),
            (lambda n=name: ops[n](random(8), random(2)), rf"{name}: scale must be float32 with one.*of shape \[2\]"),
            (lambda n=name: ops[n](random(8), random(0)), rf"{name}: scale must be float32 with one.*of shape \[0\]"),
            (lambda n=name: ops[n](random(8), SCALE.half()), rf"{name}: scale must be float32 .*got torch.float16"),
        )
    ),
    *(
        case
        for name in TOKEN
        for case in (
            (lambda n=name: ops[n](torch.arange(8)), rf"{name}: x must be floating .*got torch.int64 of shape \[8\]"),
            (lambda n=name: ops[n](torch.tensor(1.0)), rf"{name}: x must be floating with a last dimension.*\[\]"),
            (lambda n=name: ops[n](random(2, 0)), rf"{name}: .* last dimension that is not empty.*shape \[2, 0\]"),
        )
    ),
    (
        lambda: ops.dynamic_per_token_scaled_fp8_quant(random(8), random(1).double()),
        r"dynamic_per_token_scaled_fp8_quant: scale_ub must be float32 with one element, got torch.float64.* \[1\]",
    ),
    *(
        case
        for name in GROUP
        for case in (
            (lambda n=name: ops[n](torch.arange(8), 2), rf"{name}: x must be floating, got torch.int64"),
            (lambda n=name: ops[n](torch.tensor(1.0), 1), rf"{name}: .*multiple of group_size 1, got shape \[\]"),
            (lambda n=name: ops[n](random(8), 3), rf"{name}: .* a multiple of group_size 3, got shape \[8\]"),
            (lambda n=name: ops[n](random(8), 0), rf"{name}: group_size must be positive, got 0"),
            (lambda n=name: ops[n](random(8), -4), rf"{name}: group_size must be positive, got -4"),
            (lambda n=name: ops[n](random(8), 4, epsilon=0.0), rf"{name}: epsilon must be positive, got 0.0"),
            (lambda n=name: ops[n](random(8), 4, epsilon=NAN), rf"{name}: epsilon must be positive, got nan"),
        )
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused_arguments(call, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert str(caught.value).startswith("vllm_ir.")
    assert "\n" not in str(caught.value)


def test_empty_tensors() -> None:
    for name in STATIC:
        assert ops[name](random(2, 0), SCALE).shape == (2, 0)
    for name in TOKEN:
        assert [result.shape for result in ops[name](random(0, 8))] == [(0, 8), (0, 1)]
    for name in GROUP:
        assert [result.shape for result in ops[name](random(0, 8), 4)] == [(0, 8), (0, 2)]
        assert [result.shape for result in ops[name](random(3, 0), 4)] == [(3, 0), (3, 0)]


def test_results_are_narrower_so_that_nothing_is_donated() -> None:
    assert all(ops[name].maybe_inplace is None for name in (*STATIC, *TOKEN, *GROUP))
