"""Provider `cpu`: kernels in C++ for tensors in main memory, compiled when the first of them runs."""

from vllm_ir.backends.kernels.cpu import providers
from vllm_ir.backends.kernels.cpu.build import unsupported_reason

__all__ = ["providers", "unsupported_reason"]
