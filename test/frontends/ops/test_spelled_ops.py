"""The ops that models in plain PyTorch are raised to: their definitions bit for bit, and what they refuse."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.frontends.ops import ops

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype)


def same(one: Tensor, other: Tensor) -> bool:
    return one.dtype is other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gated_pairs_are_gated_halves(dtype: torch.dtype) -> None:
    gate, up = random(3, 16, dtype=dtype), random(3, 16, dtype=dtype)
    assert same(ops.silu_mul(gate, up), F.silu(gate) * up)
    for form in ("none", "tanh"):
        assert same(ops.gelu_mul(gate, up, form), F.gelu(gate, approximate=form) * up)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_each_pair_is_turned_by_its_angle(dtype: torch.dtype, is_neox: bool) -> None:
    x, cos, sin = random(2, 3, 5, 8, dtype=dtype), random(5, 4, dtype=dtype), random(5, 4, dtype=dtype)
    got = ops.apply_rotary(x, cos, sin, is_neox)
    for pair in range(4):
        first, second = (pair, pair + 4) if is_neox else (2 * pair, 2 * pair + 1)
        a, b, c, s = x[..., first], x[..., second], cos[:, pair], sin[:, pair]
        assert same(got[..., first], a * c - b * s)
        assert same(got[..., second], b * c + a * s)
    wide = [torch.cat((t, t), -1) if is_neox else t.repeat_interleave(2, -1) for t in (cos, sin)]
    assert same(ops.apply_rotary(x, *wide, is_neox), got)


def test_each_element_may_have_an_angle_of_its_own() -> None:
    x, cos, sin = random(5, 8), random(5, 8), random(5, 8)
    partners = torch.cat((-x[:, 4:], x[:, :4]), -1)
    assert same(ops.apply_rotary(x, cos, sin, True), x * cos + partners * sin)


def test_tables_of_float32_promote() -> None:
    assert ops.apply_rotary(random(5, 8, dtype=torch.bfloat16), random(5, 8), random(5, 8), True).dtype is torch.float32


def test_a_static_cache_has_tokens_at_their_positions() -> None:
    key, value, keys, values = random(2, 3, 2, 8), random(2, 3, 2, 4), random(2, 3, 6, 8), random(2, 3, 6, 4)
    before = keys.clone()
    new_keys, new_values = ops.write_static_cache(key, value, keys, values, torch.tensor([4, 1]))
    assert same(keys, before)
    for new, old, given in (new_keys, keys, key), (new_values, values, value):
        assert same(new[:, :, [4, 1]], given)
        assert same(new[:, :, [0, 2, 3, 5]], old[:, :, [0, 2, 3, 5]])
    with pytest.raises(IndexError):
        ops.write_static_cache(key, value, keys, values, torch.tensor([4, 6]))


def rotary(shape: tuple[int, ...], *tables: tuple[int, ...]) -> Callable[[], object]:
    return lambda: ops.apply_rotary(random(*shape), *(random(*table) for table in tables), True)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: ops.silu_mul(torch.ones(3, dtype=torch.int64), random(3)),
        r"silu_mul: gate must be floating, got torch.int64",
    ),
    (lambda: ops.silu_mul(random(3, 4), random(3, 1)), r"silu_mul: up must be .* \[3, 4\], like gate; got .* \[3, 1\]"),
    (lambda: ops.gelu_mul(random(3), random(3).double()), r"gelu_mul: up must be torch.float32 .* got torch.float64"),
    (lambda: ops.gelu_mul(random(3), random(3), "erf"), r"gelu_mul: approximate must be 'none' or 'tanh', got 'erf'"),
    (rotary((5, 7), (5, 7), (5, 7)), r"apply_rotary: x must be floating with an even last dimension, got .* \[5, 7\]"),
    (
        rotary((5, 8), (5, 6), (5, 6)),
        r"the last dimension of cos and sin must be 8, as of x, or 4; cos has shape \[5, 6\]",
    ),
    (rotary((5, 8), (5, 8), (5, 4)), r"the last dimension of cos and sin .* sin has shape \[5, 4\]"),
    (rotary((5, 8), (3, 5, 8), (5, 8)), r"cos must be floating with 1 to 2 dimensions, got .* \[3, 5, 8\]"),
    (rotary((1, 5, 8), (5, 8), (3, 5, 8)), r"sin must broadcast to the shape of x, \[1, 5, 8\], got \[3, 5, 8\]"),
    (
        lambda: ops.write_static_cache(*(random(1, 2, 3, 4) for _ in range(4)), torch.arange(3.0)),
        r"write_static_cache: positions must be int64 with one dimension, got torch.float32 of shape \[3\]",
    ),
    (
        lambda: ops.write_static_cache(*(random(2, 3, 4) for _ in range(4)), torch.arange(3)),
        r"key_cache must have shape \[sequences, kv_heads, positions, head_size\], got \[2, 3, 4\]",
    ),
    (
        lambda: ops.write_static_cache(*(random(1, 2, 3, 4) for _ in range(4)), torch.arange(2)),
        r"key must be torch.float32 of shape \[1, 2, 2, 4\], by key_cache and positions; got .* \[1, 2, 3, 4\]",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number: int) -> None:
    call, message = REFUSED[number]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["silu_mul", "gelu_mul", "apply_rotary"])
def test_gradients_are_those_of_the_definition(name: str) -> None:
    tensors = [random(4, 8).double().requires_grad_() for _ in range(3 if name == "apply_rotary" else 2)]
    rest = (True,) if name == "apply_rotary" else ()
    assert torch.autograd.gradcheck(lambda *given: ops[name](*given, *rest), tensors)
