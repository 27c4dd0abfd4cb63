"""`fused_moe`: its native definition against one token and one expert after the other, and what it refuses."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vllm_ir.frontends.ops import ops

TOKENS, EXPERTS, SIZE, WIDTH, K = 7, 4, 6, 5, 2


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def arguments(
    tokens: int = TOKENS, experts: int = EXPERTS, k: int = K, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    x, w13 = random(tokens, SIZE, dtype=dtype), random(experts, 2 * WIDTH, SIZE, dtype=dtype, seed=1)
    w2, weights = random(experts, SIZE, WIDTH, dtype=dtype, seed=2), random(tokens, k, seed=3)
    ids = torch.randint(0, max(experts, 1), (tokens, k), generator=torch.Generator().manual_seed(4))
    return [x, w13, w2, weights, ids]


def one_by_one(x: Tensor, w13: Tensor, w2: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
    """Each rounding spelled out; products of a matrix and a vector."""
    result = torch.zeros(x.shape)
    for token, row in enumerate(x):
        for weight, expert in zip(weights[token].float(), ids[token].tolist(), strict=True):
            if 0 <= expert < len(w13):
                gate, up = (w13[expert] @ row).chunk(2)
                result[token] += weight * (w2[expert] @ (F.silu(gate) * up)).float()
    return result.to(x.dtype)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float64, 1e-6), (torch.bfloat16, 0.05)])
@pytest.mark.parametrize(("tokens", "experts", "k"), [(7, 4, 2), (1, 1, 1), (0, 4, 2), (3, 4, 0), (5, 3, 6), (3, 0, 2)])
def test_the_weighted_sum_of_experts(tokens: int, experts: int, k: int, dtype: torch.dtype, error: float) -> None:
    args = arguments(tokens, experts, k, dtype)
    got = ops.fused_moe(*args)
    assert got.dtype is dtype
    torch.testing.assert_close(got, one_by_one(*args), rtol=error, atol=error)


def test_experts_of_other_ranks_add_nothing() -> None:
    x, w13, w2, weights, ids = arguments()
    ids = torch.tensor([[-1, 0], [4, 1], [-1, -1], [2, 99], [3, 3], [0, -7], [5, 4]])
    got = ops.fused_moe(x, w13, w2, weights, ids)
    torch.testing.assert_close(got, one_by_one(x, w13, w2, weights, ids), rtol=1e-5, atol=1e-5)
    assert not got[2].any()
    assert not got[6].any()


def test_ranks_that_share_the_experts_add_up_to_all() -> None:
    x, w13, w2, weights, ids = arguments()
    halves = [ops.fused_moe(x, w13[half], w2[half], weights, ids - half.start) for half in (slice(0, 2), slice(2, 4))]
    torch.testing.assert_close(sum(halves), ops.fused_moe(x, w13, w2, weights, ids), rtol=1e-5, atol=1e-5)


def test_an_expert_that_a_token_does_not_choose_does_not_matter() -> None:
    x, w13, w2, weights, ids = arguments()
    want = ops.fused_moe(x, w13, w2, weights, ids.clamp(max=2))
    w2 = w2.clone()
    w2[3] = torch.inf
    assert torch.equal(ops.fused_moe(x, w13, w2, weights, ids.clamp(max=2)), want)


def test_ids_of_either_width_and_weights_of_any_dtype() -> None:
    x, w13, w2, weights, ids = arguments(dtype=torch.bfloat16)
    want = ops.fused_moe(x, w13, w2, weights.bfloat16().float(), ids)
    assert torch.equal(ops.fused_moe(x, w13, w2, weights.bfloat16(), ids.int()), want)


X, W13, W2, WEIGHTS, IDS = arguments()
REFUSED = [
    ((X.long(), W13, W2, WEIGHTS, IDS), r"x must be floating of shape \[tokens, d\], got torch.int64"),
    ((X[None], W13, W2, WEIGHTS, IDS), r"x must be floating.*of shape \[1, 7, 6\]"),
    ((X, W13.half(), W2, WEIGHTS, IDS), r"w13 must have three dimensions and the dtype of x, torch.float32, got"),
    ((X, W13, W2[0], WEIGHTS, IDS), r"w2 must have three dimensions.*of shape \[6, 5\]"),
    ((X, W13[..., 1:], W2, WEIGHTS, IDS), r"for an x of 6 columns, got shapes \[4, 10, 5\] and \[4, 6, 5\]"),
    ((X, W13[:, 1:], W2, WEIGHTS, IDS), r"got shapes \[4, 9, 6\] and"),
    ((X, W13, W2[:3], WEIGHTS, IDS), r"got shapes \[4, 10, 6\] and \[3, 6, 5\]"),
    ((X, W13, W2[..., 1:], WEIGHTS, IDS), r"got shapes \[4, 10, 6\] and \[4, 6, 4\]"),
    ((X, W13, W2[:, 1:], WEIGHTS, IDS), r"got shapes \[4, 10, 6\] and \[4, 5, 5\]"),
    ((X, W13, W2, IDS, IDS), r"topk_weights must be floating and topk_ids int32 or int64, got torch.int64 and"),
    ((X, W13, W2, WEIGHTS, WEIGHTS), r"got torch.float32 and torch.float32"),
    ((X, W13, W2, WEIGHTS, IDS[:, :1]), r"must be \[7, k\].*got shapes \[7, 2\] and \[7, 1\]"),
    ((X, W13, W2, WEIGHTS[:3], IDS[:3]), r"must be \[7, k\].*got shapes \[3, 2\] and \[3, 2\]"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED, ids=lambda part: part[:30] if type(part) is str else "")
def test_refused_arguments(args: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^vllm_ir.fused_moe: .*{message}") as caught:
        ops.fused_moe(*args)
    assert "\n" not in str(caught.value)
