"""The op registry with every provider in it: those of this project, and those that other packages plug in."""

from vllm_ir.frontends.ops import (
    IrOp,
    IrOpImpl,
    IrOpPriorityConfig,
    KernelConfig,
    RegistrationError,
    SizeRanges,
    adopt,
    enable_torch_wrap,
    migration,
    ops,
    register_op,
    set_default_torch_wrap,
    statically_known,
    unregister,
)

# Last: modules that packages plug in are imported here, and may take the names above from `vllm_ir`.
from vllm_ir.backends import kernels  # isort: skip

__all__ = [
    "IrOp",
    "IrOpImpl",
    "IrOpPriorityConfig",
    "KernelConfig",
    "RegistrationError",
    "SizeRanges",
    "adopt",
    "enable_torch_wrap",
    "kernels",
    "migration",
    "ops",
    "register_op",
    "set_default_torch_wrap",
    "statically_known",
    "unregister",
]
