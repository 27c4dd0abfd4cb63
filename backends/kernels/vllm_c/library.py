"""Where vLLM's kernels are, and its operators in the namespaces `_C` and `_C_cache_ops`."""

# pyright: reportUnknownMemberType=false
# torch.compiler lacks types.

import torch

from vllm_ir.backends.kernels.external import ExternalLibrary, Operator

PROVIDER = "vllm_c"
LIBRARY = ExternalLibrary(PROVIDER, "vllm", ("_C", "_C_stable_libtorch"))
"""Releases have one of these extensions, or both; operators are spread over them."""
SUPPORTED = LIBRARY.unsupported_reason is None


def unsupported_reason() -> str | None:
    """Why no kernel of vLLM can run in this process; None if they can."""
    return LIBRARY.unsupported_reason


def operator(name: str, namespace: str = "_C") -> Operator:
    """An operator of vLLM, which is imported for it; errors are those of `ExternalLibrary.require`."""
    _require(namespace, name)
    return getattr(getattr(torch.ops, namespace), name).default


@torch.compiler.assume_constant_result  # Dynamo traces the call of an operator, and not what loads it
def _require(namespace: str, name: str) -> None:
    LIBRARY.require(namespace, name)
