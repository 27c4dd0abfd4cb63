"""Provider `cpu`: kernels in C++ for tensors in main memory, compiled when the first of them runs."""

from vllm_ir.backends.kernels.cpu import (
    attention,
    collective_norms,
    collectives,
    fused_activation_quant,
    fused_norm_quant,
    fused_rope,
    in_parts,
    kv_cache,
    moe,
    providers,
    quantization,
)
from vllm_ir.backends.kernels.cpu.build import unsupported_reason

__all__ = [
    "attention",
    "collective_norms",
    "collectives",
    "fused_activation_quant",
    "fused_norm_quant",
    "fused_rope",
    "in_parts",
    "kv_cache",
    "moe",
    "providers",
    "quantization",
    "unsupported_reason",
]
