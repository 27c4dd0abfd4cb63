"""Programs as StableHLO: `ir.export_stablehlo`."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.stablehlo.aliases import AliasMode
from vllm_ir.backends.stablehlo.program import StableHLOProgram
from vllm_ir.backends.stablehlo.signature import Signature, signature_of
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.fx.importer import MAIN
from vllm_ir.tools.pipelines import run_passes

PURE = "alias-outputs,functionalize"
CONVERT = "convert-to-stablehlo,narrow-updates"


def export_stablehlo(module: ModuleOp, alias: AliasMode = "may") -> StableHLOProgram:
    """The module as a StableHLO program.

    Args:
        module: at any level. Passes that it has not been through yet run on a copy: alias-outputs, functionalize,
            convert-to-stablehlo, narrow-updates.
        alias: `"may"` permits XLA to use the memory of an argument for the output that it is, `"must"` obliges it to,
            `"none"` says nothing about memory: whoever runs the program copies outputs to arguments.

    Raises:
        PassFailedException: the program has no form in StableHLO; the message names the operation, with file and line.
        VerifyException: the module is not valid.
        ImportError: the packages of the extra `stablehlo` are not installed.
    """
    return to_program(module.clone(), alias)


def to_program(
    module: ModuleOp, alias: AliasMode = "may", on_pass: Callable[[str, float], None] | None = None
) -> StableHLOProgram:
    """Like `export_stablehlo`, but changes `module`; `on_pass` is called behind each pass."""
    main = main_function(module)
    signature: Signature | None = None
    if main is not None:
        if not main.is_pure:
            run_passes(module, PURE, on_pass=on_pass)
        signature = signature_of(main_function(module) or main)
        run_passes(module, CONVERT, on_pass=on_pass, check=False)
    return StableHLOProgram(module, signature, alias)


def main_function(module: ModuleOp) -> FuncOp | None:
    """The main function, if the module is not StableHLO yet."""
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == MAIN:
            return op
    return None
