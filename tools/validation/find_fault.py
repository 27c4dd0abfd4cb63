"""Bisection with validation as the judge: `ir.bisect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from vllm_ir.tools.bisect import BisectResult
from vllm_ir.tools.bisect import bisect as bisect_by
from vllm_ir.tools.validation.validate import Verdict, compare


def bisect(
    module: ModuleOp,
    spec: str,
    *,
    output: Path | str = "before.mlir",
    seed: int = 0,
    only: str | None = None,
    options: Sequence[str] = (),
    report: Callable[[str], None] | None = None,
) -> BisectResult:
    """Find the first pass of a pipeline that changes what a module does, and the first wrong rewrite in it.

    Args:
        module: what the pipeline is given; it stays as it is.
        spec: the pipeline.
        output: the file that the module in front of the wrong pass is written to, if a pass is wrong.
        seed: makes other inputs.
        only: the one kind of inputs to use, by its name in a verdict.
        options: further options of `vllm-ir-opt` that the command which shows the fault needs.
        report: called with a line for each run of a pass.

    Raises:
        ValueError: the pipeline is malformed.
        VerifyException: the module is not valid.
    """

    def check(before: ModuleOp, after: ModuleOp) -> Verdict:
        return compare("the pass", before, after, seed=seed, only=only)

    return bisect_by(module, spec, check, output=output, options=options, report=report)
