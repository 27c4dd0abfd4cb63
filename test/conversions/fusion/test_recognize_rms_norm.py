"""Norms in the spellings of `transformers` and of PyTorch become `rms_norm`; what is none stays."""

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

HALVES = (torch.bfloat16, torch.float16)
CLASSES = (
    *(LlamaRMSNorm, Qwen3RMSNorm, MistralRMSNorm, T5LayerNorm, Olmo2RMSNorm),
    *(GemmaRMSNorm, Gemma2RMSNorm, Gemma3RMSNorm, nn.RMSNorm),
)


def inputs(dtype: torch.dtype = torch.float32, weight_dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 16).to(dtype), torch.randn(16).to(weight_dtype or dtype)


def scale(x: Tensor, dim: int = -1) -> Tensor:
    return torch.rsqrt(x.pow(2).mean(dim, keepdim=True) + 1e-6)


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_class_is_one_norm_and_nothing_of_it_is_left(
    raised, kind: type[nn.Module], dtype: torch.dtype, decompose: bool
):
    layer = kind(16, eps=1e-6)
    x, weight = inputs(dtype)
    found = raised(lambda x, weight: functional_call(layer, {"weight": weight}, (x,)), x, weight, decompose=decompose)
    assert found.count("rms_norm") == 1
    assert "rsqrt" not in str(found.module)


def test_a_weight_of_float32_promotes_the_result_of_t5(raised):
    layer = T5LayerNorm(16)
    x, weight = inputs(torch.bfloat16, torch.float32)
    found = raised(lambda x, weight: functional_call(layer, {"weight": weight}, (x,)), x, weight)
    assert found.fusions == {"recognize_rms_norm_not_rounded": 1}


SPELLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a product": lambda x, w: w * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)),
    "an operator": lambda x, w: x * torch.rsqrt((x**2).mean(dim=-1, keepdim=True) + 1e-5) * w,
    "the square": lambda x, w: w * (x * torch.rsqrt(1e-5 + torch.square(x).mean(-1, True))),
    "the dimension from the first": lambda x, w: w * (x * scale(x, 2)),
    "a power of the mean": lambda x, w: w * (x * torch.pow(x.pow(2).mean(-1, keepdim=True) + 1e-6, -0.5)),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_other_spellings(raised, name: str):
    assert raised(SPELLINGS[name], *inputs()).fusions == {"recognize_rms_norm": 1}


@pytest.mark.parametrize("epsilon", [1e-5, 1e-8, 0.125])
def test_any_epsilon(raised, epsilon: float):
    assert raised(lambda x: F.rms_norm(x, (16,), None, epsilon), inputs()[0]).count("rms_norm") == 1


def test_no_weight(raised):
    found = raised(lambda x: (values := x.float()).mul(scale(values)).to(x.dtype), inputs(torch.bfloat16)[0])
    assert found.fusions == {"recognize_rms_norm_without_weight": 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_quotient_by_the_root_is_the_same_but_for_rounding(raised, dtype: torch.dtype):
    def norm(x: Tensor, weight: Tensor) -> Tensor:
        values = x.float()
        return weight * (values / torch.sqrt(values.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    exact = raised(norm, *inputs(dtype))
    assert exact.fusions == {}
    assert "its rounding is reordered, allowed is exact" in exact.reasons
    assert raised(norm, *inputs(dtype), numerics="reordered").fusions == {"recognize_rms_norm": 1}


REFUSED: dict[str, tuple[Callable[[Tensor, Tensor], object], str]] = {
    "another dimension": (
        lambda x, w: w * (x * scale(x, 1)),
        r"result 0 is tensor<2x1x16xf32>, the pattern gives tensor<2x3x1x",
    ),
    "the third power": (
        lambda x, w: w * (x * torch.rsqrt(x.pow(3).abs().mean(-1, keepdim=True) + 1e-6)),
        r"@aten.abs.default: aten.(pow.Tensor_Scalar|mul.Tensor) is expected here",
    ),
    "the fourth power": (
        lambda x, w: w * (x * torch.rsqrt(x.pow(4).mean(-1, keepdim=True) + 1e-6)),
        r"@aten.pow.Tensor_Scalar: argument 1 is 4, the pattern has 2",
    ),
    "the mean of another tensor": (lambda x, w: w * (x * scale(x.neg())), r"stands where %arg0 is expected"),
    "a weight of another shape": (
        lambda x, w: w[:3, None] * (x * scale(x)),
        r"weight must have shape \[16\].*got \[3, 1\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_norm_stays_with_a_reason(raised, name: str):
    function, reason = REFUSED[name]
    found = raised(function, *inputs(), only="recognize_rms_norm")
    assert found.fusions == {}
    assert re.search(reason, found.reasons), found.reasons


def test_a_sum_is_no_mean(raised):
    found = raised(lambda x, w: w * (x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)), *inputs())
    assert found.fusions == {}


def test_a_scale_that_is_used_elsewhere_stays(raised):
    def norm(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        factor = scale(x)
        return weight * (x * factor), factor.neg()

    found = raised(norm, *inputs(), only="recognize_rms_norm")
    assert found.fusions == {}
    assert "is also used by" in found.reasons


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_arithmetic_in_16_bits_is_another(raised, dtype: torch.dtype):
    found = raised(lambda x, weight: weight * (x * scale(x)), *inputs(dtype))
    assert found.count("rms_norm") == 0


def test_rounding_to_another_dtype_stays_behind_a_norm_in_float32(raised):
    def norm(x: Tensor, weight: Tensor) -> Tensor:
        values = x.float()
        return weight * (values * scale(values)).to(weight.dtype)

    x, weight = inputs(torch.bfloat16, torch.float16)
    assert raised(norm, x, weight).fusions == {"recognize_rms_norm_without_weight": 1}
    refused = raised(norm, x, weight, only="recognize_rms_norm")
    assert refused.fusions == {}
    assert "result 0 is tensor<2x3x16xf16>, the pattern gives tensor<2x3x16xbf16>" in refused.reasons
