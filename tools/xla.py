"""The backend `vllm_ir_xla` of `torch.compile`: graphs run as StableHLO on XLA's CPU client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import fx
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.program_call import Compiled
from vllm_ir.backends.stablehlo.program import StableHLOProgram
from vllm_ir.backends.stablehlo.signature import Signature
from vllm_ir.backends.stablehlo.xla import program_of
from vllm_ir.tools.lowering import validator_for
from vllm_ir.tools.options import CompileOptions
from vllm_ir.tools.pipelines import run_passes
from vllm_ir.tools.pure_programs import PureCompiler, PureProgram, compile_pure
from vllm_ir.tools.reports import CompileReport, count_ops, phase, record_phase
from vllm_ir.tools.stablehlo import CONVERT, PURE

if TYPE_CHECKING:
    from vllm_ir.tools.validation.validator import Validator


def vllm_ir_xla(
    gm: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Compiled:
    """Compile a graph through the IR and StableHLO for XLA CPU; a backend of `torch.compile`.

    Arguments that the graph writes are updated in their own memory. A graph of symbolic sizes is compiled once for each
    set of sizes that it is called with.

    Args:
        gm: a graph from Dynamo, `make_fx` or built by hand. It is not changed.
        example_inputs: its inputs: tensors, real or fake, and numbers.
        mode: as for `torch.compile(backend="inductor")`, and ignored.
        options: as for the backend `vllm_ir`; `passes` must end in a pure function.

    Raises:
        ValueError: an option is unknown or malformed.
        FxImportError: the program cannot be imported; the message names the node and the user's line.
        PassFailedException: an operation has no form in StableHLO.
    """
    return compile_pure(PureCompiler("vllm_ir_xla", _compile), gm, example_inputs, mode, options, PURE)


def _compile(program: PureProgram, options: CompileOptions, report: CompileReport) -> Compiled:
    signature = program.signature
    converted = _convert(program.module, signature, report, validator_for(options, report))
    with phase(report, "backend"):
        executable = converted.executable
    return program_of(
        executable,
        signature,
        in_place=True,
        held=program.held,
        overlapping=program.overlapping,
        offsets=program.offsets,
    )


def _convert(
    module: ModuleOp, signature: Signature, report: CompileReport, validator: Validator | None
) -> StableHLOProgram:
    def on_pass(name: str, seconds: float) -> None:
        record_phase(report, name, seconds)
        report.op_counts[name] = count_ops(module)

    run_passes(module, CONVERT, on_pass=on_pass, check=False, between=validator and validator.between)
    with phase(report, "export"):
        return StableHLOProgram(module, signature)
