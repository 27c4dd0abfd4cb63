"""Platforms: the devices that programs run on, and which providers are asked first there."""

from typing import TYPE_CHECKING

from vllm_ir.frontends.platforms.current import detect
from vllm_ir.frontends.platforms.known import CpuPlatform, CudaPlatform, NeuronPlatform, RocmPlatform, XpuPlatform
from vllm_ir.frontends.platforms.platform import Platform

if TYPE_CHECKING:
    current_platform: Platform
    """The platform of this process; found when it is first asked for."""

__all__ = [
    "CpuPlatform",
    "CudaPlatform",
    "NeuronPlatform",
    "Platform",
    "RocmPlatform",
    "XpuPlatform",
    "current_platform",
    "detect",
]

if not TYPE_CHECKING:  # a type checker would let it stand for every misspelt name

    def __getattr__(name: str) -> object:
        if name != "current_platform":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return detect()
