"""The op registry: functional ops with a native definition, implementations by provider, and priorities.

Importing this package registers the ops of the families below.
"""

from vllm_ir.frontends.ops import activations, attention, collectives, kv_cache, moe, norms, rope
from vllm_ir.frontends.ops.config import IrOpPriorityConfig, KernelConfig
from vllm_ir.frontends.ops.impl import NATIVE, IrOpImpl
from vllm_ir.frontends.ops.op import IrOp
from vllm_ir.frontends.ops.registry import OpNamespace, get_op, ops, register_op

__all__ = [
    "NATIVE",
    "IrOp",
    "IrOpImpl",
    "IrOpPriorityConfig",
    "KernelConfig",
    "OpNamespace",
    "activations",
    "attention",
    "collectives",
    "get_op",
    "kv_cache",
    "moe",
    "norms",
    "ops",
    "register_op",
    "rope",
]
