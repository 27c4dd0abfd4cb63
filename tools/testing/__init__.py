"""What authors of kernels test them with: `check_impl`, and `conformance`, which calls it for every implementation."""

from vllm_ir.tools.testing.check_impl import Conformance, ConformanceError, NotCheckable, check_impl

__all__ = ["Conformance", "ConformanceError", "NotCheckable", "check_impl"]
