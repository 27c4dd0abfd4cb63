"""What authors of kernels test them with: `check_impl`, and a pytest plugin that calls it for every implementation."""

from vllm_ir.tools.testing.check_impl import Conformance, ConformanceError, check_impl

__all__ = ["Conformance", "ConformanceError", "check_impl"]
