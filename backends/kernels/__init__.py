"""Providers of kernels: implementations of the ops beside their native definitions.

Importing this package registers them: the provider `cpu`; `vllm_c`, `aiter` and `xpu_kernels` where their libraries are
installed, which it does not import; and those of installed distributions that have an entry point in the group
`vllm_ir.kernels`. It compiles and chooses nothing: the default priority of every op stays its native definition, or
what the platform names. `docs/kernels.md` tells how to add a kernel.
"""

from vllm_ir.backends.kernels import aiter_kernels, cpu, vllm_c, xpu_kernels
from vllm_ir.backends.kernels.plugins import load_plugins

load_plugins()

__all__ = ["aiter_kernels", "cpu", "vllm_c", "xpu_kernels"]
