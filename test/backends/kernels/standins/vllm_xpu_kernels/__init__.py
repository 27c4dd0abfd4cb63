"""Stands in for vllm-xpu-kernels."""
