"""The op registry as a module: what `vllm.ir.op` is in vLLM."""

from vllm_ir.frontends.ops import (
    RESERVED_PROVIDERS,
    IrOp,
    IrOpImpl,
    IrOpInplaceOverload,
    enable_torch_wrap,
    register_op,
    set_default_torch_wrap,
)

__all__ = [
    "RESERVED_PROVIDERS",
    "IrOp",
    "IrOpImpl",
    "IrOpInplaceOverload",
    "enable_torch_wrap",
    "register_op",
    "set_default_torch_wrap",
]
