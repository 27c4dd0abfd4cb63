"""The `functionalize` pass."""

from vllm_ir.conversions.functionalize.functionalize import FunctionalizePass

__all__ = ["FunctionalizePass"]
