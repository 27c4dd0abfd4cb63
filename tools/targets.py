"""What `vllm-ir-opt` can write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

if TYPE_CHECKING:
    from vllm_ir.backends.stablehlo.aliases import AliasMode
    from vllm_ir.backends.stablehlo.program import StableHLOProgram


@dataclass(frozen=True)
class FxTarget(Target):
    """Python code of the FX graph that a module exports to."""

    name = "fx"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Write the code; raises what `export_fx` raises."""
        from vllm_ir.backends.fx.export import export_fx

        code = export_fx(module).print_readable(print_output=False)
        output.write(code.strip() + "\n")


@dataclass(frozen=True)
class StableHLOTarget(Target):
    """StableHLO text of a module, with aliases as `alias` says: `may`, `must` or `none`."""

    name = "stablehlo"

    alias: str = "may"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Write the text; raises what `export_stablehlo` raises."""
        output.write(_program(module, self.alias).text)


@dataclass(frozen=True)
class VhloTarget(Target):
    """VHLO bytecode of a module, for StableHLO of `version`: three numbers, `4 weeks` or `12 weeks`."""

    name = "vhlo"

    alias: str = "may"
    version: str = "12 weeks"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Write the bytecode; raises what `export_stablehlo` and `to_portable_artifact` raise."""
        output.write(bytes_text(_program(module, self.alias).to_portable_artifact(self.version)))


@dataclass(frozen=True)
class HloProtoTarget(Target):
    """A serialised HloModuleProto of a module."""

    name = "hlo-proto"

    alias: str = "may"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        """Write the proto; raises what `export_stablehlo` raises."""
        output.write(bytes_text(_program(module, self.alias).to_hlo_proto()))


def bytes_text(data: bytes) -> str:
    """Bytes as the text that targets write: a character for each."""
    return data.decode("latin-1")


def text_bytes(text: str, target: str) -> bytes:
    """What a target has written, as bytes."""
    return text.encode("latin-1" if target in BINARY_TARGETS else "utf-8")


def _program(module: ModuleOp, alias: str) -> StableHLOProgram:
    from vllm_ir.tools.stablehlo import export_stablehlo

    return export_stablehlo(module, cast("AliasMode", alias))


def _mlir() -> type[Target]:
    from xdsl.targets.mlir import MLIRTarget

    return MLIRTarget


def _fx() -> type[Target]:
    return FxTarget


def _stablehlo() -> type[Target]:
    return StableHLOTarget


def _vhlo() -> type[Target]:
    return VhloTarget


def _hlo_proto() -> type[Target]:
    return HloProtoTarget


OUR_TARGETS: Mapping[str, Callable[[], type[Target]]] = {
    "fx": _fx,
    "stablehlo": _stablehlo,
    "vhlo": _vhlo,
    "hlo-proto": _hlo_proto,
}
"""Those that xDSL does not have."""

TARGETS: Mapping[str, Callable[[], type[Target]]] = {"mlir": _mlir, **OUR_TARGETS}
"""Targets by name, imported when they are called."""

TORCH_TARGETS = frozenset(OUR_TARGETS)
"""Targets that take the module's word for what its calls do, and load PyTorch."""

BINARY_TARGETS = frozenset({"vhlo", "hlo-proto"})
"""Targets that write bytes."""
