"""Provider `aiter`: kernels of AMD's AITER, where it is installed.

What they take was read from `aiter/ops/rmsnorm.py` and `aiter/ops/activation.py` of the project. It is imported by the
first call of one of them.
"""

from vllm_ir.backends.kernels.aiter_kernels.library import LIBRARY, unsupported_reason

__all__ = ["unsupported_reason"]

if LIBRARY.present:
    from vllm_ir.backends.kernels.aiter_kernels import providers

    __all__ += ["providers"]
