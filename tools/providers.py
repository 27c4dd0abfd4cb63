"""The op registry with every provider in it: those of this project, and those that other packages plug in."""

from vllm_ir.backends import kernels
from vllm_ir.frontends.ops import (
    IrOp,
    IrOpImpl,
    IrOpPriorityConfig,
    KernelConfig,
    RegistrationError,
    enable_torch_wrap,
    ops,
    register_op,
    set_default_torch_wrap,
    statically_known,
    unregister,
)

__all__ = [
    "IrOp",
    "IrOpImpl",
    "IrOpPriorityConfig",
    "KernelConfig",
    "RegistrationError",
    "enable_torch_wrap",
    "kernels",
    "ops",
    "register_op",
    "set_default_torch_wrap",
    "statically_known",
    "unregister",
]
