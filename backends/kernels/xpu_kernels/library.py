"""Where the kernels of vllm-xpu-kernels are, and its operators in the namespace `_C`."""

# pyright: reportUnknownMemberType=false
# torch.compiler lacks types.

import torch

from vllm_ir.backends.kernels.external import ExternalLibrary, Operator

PROVIDER = "xpu_kernels"
LIBRARY = ExternalLibrary(PROVIDER, "vllm_xpu_kernels", ("_C",))
SUPPORTED = LIBRARY.unsupported_reason is None


def unsupported_reason() -> str | None:
    """Why no kernel of vllm-xpu-kernels can run in this process; None if they can."""
    return LIBRARY.unsupported_reason


def operator(name: str) -> Operator:
    """An operator of the library, which is imported for it; errors are those of `ExternalLibrary.require`."""
    _require(name)
    return getattr(torch.ops._C, name).default


@torch.compiler.assume_constant_result  # Dynamo traces the call of an operator, and not what loads it
def _require(name: str) -> None:
    LIBRARY.require("_C", name)
