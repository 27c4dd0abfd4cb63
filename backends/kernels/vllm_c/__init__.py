"""Provider `vllm_c`: vLLM's compiled kernels, where vLLM is installed.

What they take and write was read from vLLM's `csrc` (`torch_bindings.cpp`, also under `libtorch_stable`, and the
kernels' own files). They are registered wherever vLLM is installed with its extension, and supported where the platform
names `vllm_c` among its providers. vLLM is imported by the first call of one of them.
"""

from vllm_ir.backends.kernels.vllm_c.library import LIBRARY, unsupported_reason

__all__ = ["unsupported_reason"]

if LIBRARY.present:
    from vllm_ir.backends.kernels.vllm_c import activations, kv_cache, norms, quantization, rope

    __all__ += ["activations", "kv_cache", "norms", "quantization", "rope"]
