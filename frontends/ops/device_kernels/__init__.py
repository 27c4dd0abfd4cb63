"""Opaque kernels of an accelerator, called from PyTorch programs; eager runs a simulator in their place."""

from vllm_ir.frontends.ops.device_kernels.kernel import DeviceKernel, device_kernel

__all__ = ["DeviceKernel", "device_kernel"]
