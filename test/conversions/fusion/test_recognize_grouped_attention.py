"""Attention over repeated heads of keys and values becomes attention in groups, without the copies."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.llama.modeling_llama import repeat_kv

import vllm_ir as ir

DTYPES = (torch.float32, torch.bfloat16)


def inputs(dtype: torch.dtype, batch: int = 1, tokens: int = 6, length: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of eight heads, keys and values of two, strided as projections give them."""
    query = torch.randn(batch, tokens, 8, 16).to(dtype).transpose(1, 2)
    key, value = (torch.randn(batch, length, 2, 16).to(dtype).transpose(1, 2) for _ in range(2))
    return query, key, value


def fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    key, value = repeat_kv(key, 4), repeat_kv(value, 4)
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None, scale=0.3)


def in_steps(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """As `eager_attention_forward` of Llama."""
    scores = torch.matmul(query, repeat_kv(key, 4).transpose(2, 3)) * 0.3 + mask
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype), repeat_kv(value, 4))


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_fused_operator(raised, dtype: torch.dtype, masked: bool, decompose: bool):
    mask = [torch.randn(2, 1, 6, 6).to(dtype)] if masked else []
    found = raised(fused, *inputs(dtype, 2), *mask, decompose=decompose, numerics="reordered")
    assert found.fusions == {"recognize_grouped_attention": 1}
    assert "aten.clone" not in str(found.module)


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_of_matrices(raised, dtype: torch.dtype, batch: int, decompose: bool):
    mask = torch.randn(batch, 1, 6, 9).to(dtype)
    found = raised(in_steps, *inputs(dtype, batch, 6, 9), mask, decompose=decompose, numerics="reordered")
    assert found.fusions == {"recognize_grouped_scores": 1, "recognize_grouped_values": 1}
    assert "x8x9x16x" not in str(found.module)


def test_exact_numerics_leave_it(raised):
    """Libraries for matrices sum up in an order that depends on sizes and strides."""
    found = raised(fused, *inputs(torch.float32))
    assert found.fusions == {}
    assert "its rounding is reordered, allowed is exact" in found.reasons


def test_keys_and_values_repeated_differently_stay(raised):
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        value = value[:, None].expand(1, 4, 2, 6, 16).reshape(1, 8, 6, 16)  # heads in turns
        return F.scaled_dot_product_attention(query, repeat_kv(key, 4), value)

    assert raised(attention, *inputs(torch.float32), numerics="reordered").fusions == {}


def test_repeated_keys_that_are_used_elsewhere_stay(raised):
    def attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys = repeat_kv(key, 4)
        return F.scaled_dot_product_attention(query, keys, repeat_kv(value, 4)), keys.neg()

    found = raised(attention, *inputs(torch.float32), numerics="reordered", only="recognize_grouped_attention")
    assert found.fusions == {}
    assert "is also used by" in found.reasons


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
@pytest.mark.parametrize("function", [fused, in_steps])
def test_sizes_that_are_not_known(function, backend: str):
    ir.clear_compile_reports()
    options = {"fusions": ["recognize_grouped_attention", "recognize_grouped_scores", "recognize_grouped_values"]}
    compiled = torch.compile(function, backend=backend, options=options, dynamic=True)
    for batch, tokens, length in ((3, 5, 12), (4, 7, 13)):
        given = *inputs(torch.float32, batch, tokens, length), torch.randn(batch, 1, tokens, length)
        torch.testing.assert_close(compiled(*given), function(*given))
    [report] = ir.compile_reports()
    assert sum(map(len, report.fusions.values())) == (1 if function is fused else 2)
