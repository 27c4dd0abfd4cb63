"""Provider `cpu`: kernels in C++ for tensors in main memory, compiled when the first of them runs."""

from vllm_ir.backends.kernels.cpu import attention, collectives, kv_cache, moe, providers
from vllm_ir.backends.kernels.cpu.build import unsupported_reason

__all__ = ["attention", "collectives", "kv_cache", "moe", "providers", "unsupported_reason"]
