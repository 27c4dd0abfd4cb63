"""The platforms that this project knows.

The order of providers on CUDA, ROCm and XPU is the one that vLLM documents for its platforms (`vllm/platforms/*.py`,
`get_default_ir_op_priority`).
"""

from collections.abc import Sequence
from importlib.util import find_spec

import torch

from vllm_ir.frontends.platforms.platform import Platform


class CpuPlatform(Platform):
    """Main memory. The kernels of `cpu` are compiled when the first of them runs, which nobody is to meet unasked."""

    name = "cpu"
    device_type = "cpu"

    @classmethod
    def is_available(cls) -> bool:
        """Always."""
        return True


class CudaPlatform(Platform):
    """NVIDIA devices."""

    name = "cuda"
    device_type = "cuda"

    @classmethod
    def is_available(cls) -> bool:
        """Whether torch is built for CUDA and sees a device."""
        return torch.version.hip is None and torch.cuda.is_available()

    def kernel_providers(self) -> Sequence[str]:
        """vLLM's compiled kernels."""
        return ("vllm_c",)


class RocmPlatform(Platform):
    """AMD devices."""

    name = "rocm"
    device_type = "cuda"

    @classmethod
    def is_available(cls) -> bool:
        """Whether torch is built for ROCm and sees a device."""
        return torch.version.hip is not None and torch.cuda.is_available()

    def kernel_providers(self) -> Sequence[str]:
        """AITER, then vLLM's compiled kernels."""
        return ("aiter", "vllm_c")


class XpuPlatform(Platform):
    """Intel devices."""

    name = "xpu"
    device_type = "xpu"

    @classmethod
    def is_available(cls) -> bool:
        """Whether torch sees a device."""
        return torch.xpu.is_available()

    def kernel_providers(self) -> Sequence[str]:
        """vllm-xpu-kernels."""
        return ("xpu_kernels",)


class NeuronPlatform(Platform):
    """AWS Trainium and Inferentia, where the device's compiler fuses native definitions."""

    name = "neuron"
    device_type = "neuron"

    @classmethod
    def is_available(cls) -> bool:
        """Whether AWS's extension of torch is installed."""
        return find_spec("torch_neuronx") is not None


KNOWN: Sequence[type[Platform]] = (CudaPlatform, RocmPlatform, XpuPlatform, NeuronPlatform, CpuPlatform)
"""In the order in which they are tried."""
