"""The op registry with every provider in it: those of this project, and those that other packages plug in."""

from vllm_ir.backends import kernels
from vllm_ir.frontends.ops import IrOpPriorityConfig, KernelConfig, ops, register_op

__all__ = ["IrOpPriorityConfig", "KernelConfig", "kernels", "ops", "register_op"]
