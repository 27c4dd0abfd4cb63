"""Registers what vllm-xpu-kernels registers, with vLLM's names and schemas: a process loads one or the other."""

import vllm._C_stable_libtorch  # noqa: F401
