"""Rotary embeddings in the spellings of `transformers` become `apply_rotary`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as of_cohere
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as of_glm
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as of_gpt_neox
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as of_gptj
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as of_llama

DTYPES = (torch.float32, torch.bfloat16)
MODELS: dict[str, tuple[Callable[..., tuple[Tensor, Tensor]], int, bool]] = {
    "Llama": (of_llama, 16, True),
    "GPT-NeoX, in part": (of_gpt_neox, 8, True),
    "Cohere": (of_cohere, 16, False),
    "GLM, in part": (of_glm, 8, False),
}


def inputs(columns: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Queries, keys, cosines and sines; heads are strided, as projections give them."""
    query, key = (torch.randn(2, 5, heads, 16).to(dtype).transpose(1, 2) for heads in (4, 2))
    return query, key, *(torch.rand(2, 5, columns).to(dtype) for _ in range(2))


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_queries_and_keys(raised, model: str, dtype: torch.dtype, decompose: bool):
    function, columns, is_neox = MODELS[model]
    found = raised(function, *inputs(columns, dtype), decompose=decompose)
    assert found.fusions == {"recognize_rotary": 2}
    assert str(found.module).count(f"is_neox = {str(is_neox).lower()}") == 2


@pytest.mark.parametrize("decompose", [False, True])
def test_gptj_has_a_cosine_for_each_pair_and_repeats_it(raised, decompose: bool):
    x, table = torch.randn(2, 5, 4, 16), torch.rand(2, 5, 8)
    found = raised(lambda x, sin, cos: of_gptj(x, sin, cos), x, table, table.flip(-1), decompose=decompose)
    assert found.fusions == {"recognize_rotary": 1}


def by_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def by_neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [by_halves, by_neighbours])
def test_a_cosine_for_each_pair(raised, function: Callable[..., Tensor], dtype: torch.dtype, decompose: bool):
    x, cos, sin = torch.randn(2, 4, 5, 16), torch.rand(5, 8), torch.rand(5, 8)
    found = raised(function, *(t.to(dtype) for t in (x, cos, sin)), decompose=decompose)
    assert found.fusions == {"recognize_rotary_by_pair": 1}


def test_what_is_another_rotation_stays_with_a_reason(raised):
    x, cos, sin = torch.randn(2, 4, 5, 16), torch.rand(5, 16), torch.rand(5, 16)
    only = {"only": "recognize_rotary"}
    uneven = raised(lambda x, cos, sin: x * cos + torch.cat((-x[..., 6:], x[..., :6]), -1) * sin, x, cos, sin, **only)
    assert uneven.fusions == {}
    assert "tensor<2x4x5x6xf32" in uneven.reasons
    back = raised(lambda x, cos, sin: x * cos + torch.cat((x[..., 8:], -x[..., :8]), -1) * sin, x, cos, sin, **only)
    assert back.fusions == {}
    assert "aten.neg.default is expected" in back.reasons
    other = raised(
        lambda x, cos, sin: x.sin() * cos + torch.cat((-x[..., 8:], x[..., :8]), -1) * sin, x, cos, sin, **only
    )
    assert other.fusions == {}
    assert "stands where" in other.reasons


def test_tables_that_are_larger_than_the_tensor_stay(raised):
    x, cos, sin = torch.randn(1, 5, 16), torch.rand(3, 5, 16), torch.rand(3, 5, 16)
    found = raised(lambda x, cos, sin: x * cos + torch.cat((-x[..., 8:], x[..., :8]), -1) * sin, x, cos, sin)
    assert found.fusions == {}
    assert "cos must broadcast to the shape of x" in found.reasons
