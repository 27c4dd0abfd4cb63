"""What providers of other projects' kernels share: libraries that are found without being imported, and layouts."""

from vllm_ir.backends.kernels.external.library import ExternalLibrary, Operator

__all__ = ["ExternalLibrary", "Operator"]
