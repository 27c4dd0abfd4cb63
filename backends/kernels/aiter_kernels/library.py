"""Where AITER is, and its functions."""

import importlib
from collections.abc import Callable
from typing import cast

from vllm_ir.backends.kernels.external import ExternalLibrary

PROVIDER = "aiter"
# Another package has the same name; it has no such module.
LIBRARY = ExternalLibrary(PROVIDER, "aiter", ("ops",))
SUPPORTED = LIBRARY.unsupported_reason is None


def unsupported_reason() -> str | None:
    """Why no kernel of AITER can run in this process; None if they can."""
    return LIBRARY.unsupported_reason


def function(name: str) -> Callable[..., object]:
    """A function of AITER, which is imported for it; errors are those of `ExternalLibrary.load`."""
    LIBRARY.load()
    return cast("Callable[..., object]", getattr(importlib.import_module(LIBRARY.package), name))
