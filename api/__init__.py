"""Public interface of vllm_ir.

Everything is imported when it is first used, so that `import vllm_ir` is quick and loads neither PyTorch nor xDSL.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_ir.backends.fx.export import export_fx
    from vllm_ir.frontends.fx.importer import import_callable, import_exported, import_fx
    from vllm_ir.tools.pipelines import run_passes
    from vllm_ir.tools.post_grad.post_grad_pass import PostGradPass
    from vllm_ir.tools.providers import IrOpPriorityConfig, KernelConfig, ops, register_op
    from vllm_ir.tools.reports import clear_compile_reports, compile_reports
    from vllm_ir.tools.text import parse

__all__ = [
    "IrOpPriorityConfig",
    "KernelConfig",
    "PostGradPass",
    "clear_compile_reports",
    "compile_reports",
    "export_fx",
    "import_callable",
    "import_exported",
    "import_fx",
    "ops",
    "parse",
    "register_op",
    "run_passes",
]

_HOMES: Mapping[str, str] = MappingProxyType(
    {
        "IrOpPriorityConfig": "vllm_ir.tools.providers",
        "KernelConfig": "vllm_ir.tools.providers",
        "PostGradPass": "vllm_ir.tools.post_grad.post_grad_pass",
        "clear_compile_reports": "vllm_ir.tools.reports",
        "compile_reports": "vllm_ir.tools.reports",
        "export_fx": "vllm_ir.backends.fx.export",
        "import_callable": "vllm_ir.frontends.fx.importer",
        "import_exported": "vllm_ir.frontends.fx.importer",
        "import_fx": "vllm_ir.frontends.fx.importer",
        "ops": "vllm_ir.tools.providers",
        "parse": "vllm_ir.tools.text",
        "register_op": "vllm_ir.tools.providers",
        "run_passes": "vllm_ir.tools.pipelines",
    }
)


if not TYPE_CHECKING:  # a type checker would let it stand for every misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # found there from now on, without coming here
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
