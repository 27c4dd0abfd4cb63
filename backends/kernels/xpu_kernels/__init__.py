"""Provider `xpu_kernels`: kernels of vllm-xpu-kernels, where it is installed.

What they take was read from the project's `csrc/torch_bindings.cpp`, `csrc/layernorm.cpp` and `csrc/activation.cpp`. It
is imported by the first call of one of them.
"""

from vllm_ir.backends.kernels.xpu_kernels.library import LIBRARY, unsupported_reason

__all__ = ["unsupported_reason"]

if LIBRARY.present:
    from vllm_ir.backends.kernels.xpu_kernels import providers

    __all__ += ["providers"]
