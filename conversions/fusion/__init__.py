"""Fusions: groups of operations replaced by one, each declared by a function before and one after."""

from vllm_ir.conversions.fusion.fusion import AnyString, Fusion, Numerics
from vllm_ir.conversions.fusion.scope import fusions_in_scope, using_fusions

__all__ = ["AnyString", "Fusion", "Numerics", "fusions_in_scope", "using_fusions"]
