"""Provider `cpu`: kernels in C++ for tensors in main memory, compiled when the first of them runs."""

from vllm_ir.backends.kernels.cpu import attention, collectives, kv_cache, moe, providers, quantization
from vllm_ir.backends.kernels.cpu.build import unsupported_reason

__all__ = ["attention", "collectives", "kv_cache", "moe", "providers", "quantization", "unsupported_reason"]
