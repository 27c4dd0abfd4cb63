"""The op registry: functional ops with a native definition, implementations by provider, and priorities.

Importing this package registers the ops of the families below.
"""

from vllm_ir.frontends.ops import (
    activations,
    apply_rotary,
    attention,
    collective_norms,
    collectives,
    fused_activation_quant,
    fused_attention_quant,
    fused_double_quant,
    fused_gated_norm_quant,
    fused_mla,
    fused_mrope,
    fused_norm_pad,
    fused_norm_quant,
    fused_rope,
    fused_rope_quant,
    gated_norm,
    kv_cache,
    migration,
    moe,
    mrope,
    norms,
    quantization,
    rope,
    static_cache,
)
from vllm_ir.frontends.ops.adopt import adopt
from vllm_ir.frontends.ops.config import IrOpPriorityConfig, KernelConfig
from vllm_ir.frontends.ops.impl import NATIVE, RESERVED_PROVIDERS, IrOpImpl
from vllm_ir.frontends.ops.op import IrOp
from vllm_ir.frontends.ops.overload import IrOpInplaceOverload
from vllm_ir.frontends.ops.predicates import statically_known
from vllm_ir.frontends.ops.registry import OpNamespace, donates, get_op, ops, register_op, unregister
from vllm_ir.frontends.ops.signature import RegistrationError
from vllm_ir.frontends.ops.size_ranges import SizeRanges
from vllm_ir.frontends.ops.torch_wrap import enable_torch_wrap, set_default_torch_wrap

__all__ = [
    "NATIVE",
    "RESERVED_PROVIDERS",
    "IrOp",
    "IrOpImpl",
    "IrOpInplaceOverload",
    "IrOpPriorityConfig",
    "KernelConfig",
    "OpNamespace",
    "RegistrationError",
    "SizeRanges",
    "activations",
    "adopt",
    "apply_rotary",
    "attention",
    "collective_norms",
    "collectives",
    "donates",
    "enable_torch_wrap",
    "fused_activation_quant",
    "fused_attention_quant",
    "fused_double_quant",
    "fused_gated_norm_quant",
    "fused_mla",
    "fused_mrope",
    "fused_norm_pad",
    "fused_norm_quant",
    "fused_rope",
    "fused_rope_quant",
    "gated_norm",
    "get_op",
    "kv_cache",
    "migration",
    "moe",
    "mrope",
    "norms",
    "ops",
    "quantization",
    "register_op",
    "rope",
    "set_default_torch_wrap",
    "static_cache",
    "statically_known",
    "unregister",
]
