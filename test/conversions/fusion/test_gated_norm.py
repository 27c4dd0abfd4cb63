"""A norm with a gate behind it, written in PyTorch as in Qwen3-Next, becomes one op together with its quantisation."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import vllm_ir as ir

FUSIONS = "recognize_rms_norm,recognize_silu_mul,gated_rms_norm,gated_rms_norm_static_quant"


def layer(x: Tensor, gate: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    gated = weight * wide.to(x.dtype) * F.silu(gate.to(torch.float32))
    return ir.ops.static_scaled_fp8_quant(gated.to(x.dtype).view(-1, 48), scale)


@pytest.mark.parametrize(("dtype", "decompose"), [(torch.float32, True), (torch.bfloat16, False)], ids=str)
def test_a_plain_layer(raised, dtype: torch.dtype, decompose: bool) -> None:
    x, gate, weight = (torch.randn(shape).to(dtype) for shape in ((6, 16), (6, 16), (16,)))
    fused = raised(layer, x, gate, weight, torch.tensor([0.02]), only=FUSIONS, decompose=decompose)
    assert fused.count("gated_rms_norm_static_fp8_quant") == 1, fused.reasons
    assert fused.count("rms_norm") == 0
