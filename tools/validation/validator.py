"""Validation of a pipeline: each pass is compared with what was before it, and a fault becomes a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import DiagnosticException, PassFailedException

from vllm_ir.frontends.ops import ops
from vllm_ir.tools.files import write_whole
from vllm_ir.tools.text import text_context
from vllm_ir.tools.validation.reduce import reduce_module
from vllm_ir.tools.validation.validate import Verdict, compare


class Validator:
    """Compares the modules before and behind each pass of a pipeline."""

    def __init__(
        self,
        directory: Path | str = ".",
        *,
        seed: int = 0,
        only: str | None = None,
        reduce_seconds: float = 60.0,
        report: Callable[[Verdict], None] | None = None,
    ) -> None:
        """A validator that writes reproducers into `directory`.

        Args:
            directory: made if it does not exist.
            seed: makes other inputs.
            only: the one kind of inputs to use, by its name in a verdict.
            reduce_seconds: how long to look for a smaller module that shows a fault.
            report: called with each verdict.
        """
        self.verdicts: list[Verdict] = []
        self._directory = Path(directory)
        self._seed = seed
        self._only = only
        self._reduce_seconds = reduce_seconds
        self._report = report
        self._before: ModuleOp | None = None

    def between(self, previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
        """To be called before the first pass of a pipeline, between two, and behind the last.

        Raises:
            PassFailedException: `previous` changed what the module does; a reproducer is written.
        """
        if previous is not None and self._before is not None:
            self.check(previous, self._before, module)
        self._before = module.clone() if following is not None else None

    def check(self, entry: ModulePass, before: ModuleOp, after: ModuleOp) -> None:
        """Compare two modules, of which a pass has made the second; raises like `between`."""
        verdict = compare(str(entry.pipeline_pass_spec()), before, after, seed=self._seed, only=self._only)
        self.verdicts.append(verdict)
        if self._report is not None:
            self._report(verdict)
        if verdict.status == "failed":
            path = self._write(entry, before, verdict)
            raise PassFailedException(
                f"validation: pass {verdict.name} changes what the program does: {verdict.detail}; {path} shows it"
            )

    def _write(self, entry: ModulePass, before: ModuleOp, verdict: Verdict) -> Path:
        recipe = verdict.failing.name if verdict.failing is not None else "plain"

        def shows(module: ModuleOp) -> bool:
            after = module.clone()
            with suppress(DiagnosticException):
                entry.apply(text_context(), after)
                return compare(verdict.name, module, after, seed=self._seed, only=recipe).status == "failed"
            return False

        smallest = reduce_module(before, shows, self._reduce_seconds)
        text = reproducer(smallest, verdict, recipe, self._seed)
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{entry.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.mlir"
        write_whole(path, text.encode())
        return path


def reproducer(module: ModuleOp, verdict: Verdict, recipe: str, seed: int) -> str:
    """The text of a file that shows a fault, with the command that shows it."""
    command = f"vllm-ir-opt %s -p '{verdict.name}' --validate --validate-inputs '{recipe}' --validate-seed {seed}"
    for name in sorted({op.name.removeprefix("vllm_ir.") for op in module.walk() if op.name.startswith("vllm_ir.")}):
        if name in ops and (named := ops[name].get_priority()):
            command += f" --ir-op-priority.{name}={','.join(named)}"
    detail = " ".join(verdict.detail.split())
    return f"// RUN: {command}\n// {detail}\n// Operators and kernels of your own: add --load FILE.\n{module!s}\n"
