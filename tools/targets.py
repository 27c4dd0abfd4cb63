"""What `vllm-ir-opt` can write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target


@dataclass(frozen=True)
class FxTarget(Target):
    """Python code of the FX graph that a module exports to."""

    name = "fx"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Write the code; raises what `export_fx` raises."""
        from vllm_ir.backends.fx.export import export_fx

        code = export_fx(module).print_readable(print_output=False)
        output.write(code.strip() + "\n")


def _mlir() -> type[Target]:
    from xdsl.targets.mlir import MLIRTarget

    return MLIRTarget


def _fx() -> type[Target]:
    return FxTarget


TARGETS: Mapping[str, Callable[[], type[Target]]] = {"mlir": _mlir, "fx": _fx}
"""Targets by name, imported when they are called."""

OUR_TARGETS: Mapping[str, Callable[[], type[Target]]] = {"fx": _fx}
"""Those that xDSL does not have."""

TORCH_TARGETS = frozenset({"fx"})
"""Targets that take the module's word for what its calls do, and load PyTorch."""
