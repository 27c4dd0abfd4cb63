"""`vllm-ir-opt`: runs passes on a module and prints it, in the manner of `mlir-opt`.

Inputs are text (`.mlir`, or standard input), programs that `torch.export.save` wrote (`.pt2`), and functions or modules
of a Python file (`file.py:callable`, with `example_inputs()` beside it). PyTorch is loaded only if an input, a pass or
the target needs it.

An error is one line on stderr, with the place it concerns, and exit status 1; no result is written in that case.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException, ParseError
from xdsl.utils.lexer import Span
from xdsl.xdsl_opt_main import xDSLOptMain

from vllm_ir.tools import inputs
from vllm_ir.tools.command_line import DEBUG_VARIABLE, CommandLine, UsageError, parse_command_line
from vllm_ir.tools.failures import error_line
from vllm_ir.tools.files import write_whole
from vllm_ir.tools.pipelines import PASSES, build_passes, check_effects, relies_on_effects
from vllm_ir.tools.priority_arguments import PREFIX
from vllm_ir.tools.targets import BINARY_TARGETS, TARGETS, TORCH_TARGETS, text_bytes
from vllm_ir.tools.text import TextParser, text_context

if TYPE_CHECKING:
    from vllm_ir.tools.validation.validator import Validator

_SEPARATOR = "// -----"


class VllmIrOptMain(xDSLOptMain):
    """xDSL's driver with our dialects, passes, inputs and targets."""

    def __init__(self, command_line: CommandLine) -> None:
        """Load what the command line asks for; `ValueError` if it does not exist."""
        self.command_line = command_line
        self.args = command_line.options
        self.available_frontends = {}
        self.available_passes = dict(PASSES)
        self.available_targets = dict(TARGETS)
        self.parser: TextParser | None = None
        """Of the text that is being processed; None for other inputs."""
        self.module: ModuleOp | None = None
        """What is being processed."""
        self.line_offset = 0
        """Number of lines before that text in its file."""
        self._result = StringIO()
        self._binary = command_line.target in BINARY_TARGETS
        self._messages = self._result if command_line.output is None and not self._binary else StringIO()
        self._progress = StringIO()
        self._started = 0.0
        self.failed = False
        """Whether a fault was found that is a result, not an exception."""
        for name in command_line.load:
            inputs.load_module(name)
        self.ctx = text_context(self.args.allow_unregistered_dialect)
        self.setup_pipeline()

    def setup_pipeline(self) -> None:
        """Make the passes; `ValueError` if one does not exist or does not have an option that it is given."""
        passes = build_passes(self.command_line.passes)
        if self.args.explain_fusions:
            from vllm_ir.tools.fusion_explanation import explaining

            passes = explaining(passes)
        self.pipeline = PassPipeline(passes, self._between)
        self._validator = self._make_validator() if self.args.validate else None
        self._needs_effects = self.command_line.target in TORCH_TARGETS or any(
            relies_on_effects(entry.name) for entry in self.pipeline.passes
        )

    def run(self) -> None:
        """Process the input and write the result; raises what the input, the passes and the target raise."""
        if self.args.check_fusions is not None:
            self._check_fusions(self.args.check_fusions)
            return
        try:
            for number, text in enumerate(self._texts()):
                if number and self._binary:
                    raise UsageError(f"target {self.command_line.target!r} writes one module; the input holds several")
                if number:
                    self._result.write(f"{_SEPARATOR}\n")
                self._run_one(text)
        except Exception:
            # What was asked for to follow the passes matters most where one fails.
            sys.stdout.write(self._progress.getvalue())
            raise
        result = text_bytes(self._result.getvalue(), self.command_line.target)
        if self.command_line.output is not None:
            sys.stdout.write(self._messages.getvalue())
            write_whole(Path(self.command_line.output), result)
        elif self._binary:
            sys.stderr.write(self._messages.getvalue())
            sys.stdout.buffer.write(result)
        else:
            sys.stdout.write(self._result.getvalue())
        sys.stdout.flush()

    def _run_one(self, text: str | None) -> None:
        try:
            self.module = self._read(text)
            with self._priorities():
                if self.args.bisect:
                    self._bisect(self.module)
                    return
                self.pipeline.apply(self.ctx, self.module)
                if self.args.explain_fusions:
                    self._explain_fusions(self.module)
                self._result.write(self._outcome(self.module))
        except ParseError as error:
            span = error.span
            error.span = Span(span.start, span.end, span.input, self.line_offset)
            if not self.args.parsing_diagnostics:
                raise
            print(error, file=self._messages)
        except DiagnosticException as error:
            if not self.args.verify_diagnostics:
                raise
            print(error, *getattr(error, "__notes__", ()), sep="\n", file=self._messages)

    def _outcome(self, module: ModuleOp) -> str:
        """What is written for the module behind all passes."""
        if not self.args.run:
            return self.output_resulting_program(module)
        from vllm_ir.tools.run_module import run_module

        command_line = self.command_line
        values = None
        if command_line.kind == "py":
            values = inputs.example_inputs(command_line.path or "")
        return run_module(module, values, command_line.options.validate_seed)

    def _bisect(self, module: ModuleOp) -> None:
        """Say which pass is wrong first; that one is, is an error."""
        from vllm_ir.tools.validation.find_fault import bisect

        command_line, options = self.command_line, self.command_line.options
        output = Path(options.reproducers, "before.mlir")
        output.parent.mkdir(parents=True, exist_ok=True)
        given = [f"--load={name}" for name in command_line.load]
        given += [f"{PREFIX}{op}={','.join(names)}" for op, names in command_line.priorities.items()]
        result = bisect(
            module,
            command_line.passes,
            output=output,
            seed=options.validate_seed,
            only=options.validate_inputs,
            options=given,
            report=lambda line: print(f"bisect: {line}", file=sys.stderr),
        )
        self._result.write(f"{result}\n")
        self.failed = not result.is_right

    def _explain_fusions(self, module: ModuleOp) -> None:
        from vllm_ir.tools.fusion_explanation import explain_fusions

        print(explain_fusions(module), file=sys.stderr)

    def _check_fusions(self, names: Sequence[str]) -> None:
        """Say of each fusion whether it is right; that one is not, is an error."""
        from vllm_ir.tools.fusion_checks import check_fusions

        checks = check_fusions(names, directory=self.args.reproducers, report=lambda check: print(check, flush=True))
        self.failed = any(check.problem is not None for check in checks)

    def _make_validator(self) -> Validator:
        from vllm_ir.tools.validation.validator import Validator

        options = self.command_line.options
        return Validator(
            options.reproducers,
            seed=options.validate_seed,
            only=options.validate_inputs,
            report=lambda verdict: print(f"validation: {verdict}", file=sys.stderr),
        )

    # Input

    def _texts(self) -> Iterator[str | None]:
        """The texts to process one after the other; None stands for an input that is not text."""
        if self.command_line.kind != "mlir":
            yield None
            return
        path = self.command_line.path
        text = sys.stdin.read() if path is None else Path(path).read_text(encoding="utf-8")
        chunks = text.split(_SEPARATOR) if self.args.split_input_file else [text]
        offsets = accumulate([0, *(chunk.count("\n") for chunk in chunks[:-1])])
        for chunk, self.line_offset in zip(chunks, offsets, strict=True):
            yield chunk

    def _read(self, text: str | None) -> ModuleOp:
        command_line = self.command_line
        self.module = None
        if text is not None:
            self.parser = TextParser(self.ctx, text, command_line.input_name)
            return self.parser.parse_text(not self.args.no_implicit_module)
        if command_line.kind == "py":
            return inputs.import_python(command_line.path or "", command_line.callable or "")
        return inputs.import_file(command_line.path or "")

    # Passes

    def _priorities(self) -> AbstractContextManager[object]:
        priorities = self.command_line.priorities
        if not priorities:
            return nullcontext()
        from vllm_ir.tools.providers import IrOpPriorityConfig, ops

        for op in priorities:
            if op not in ops:
                raise UsageError(f"--ir-op-priority.{op}: there is no op {op!r}; known are {', '.join(ops)}")
        return IrOpPriorityConfig(**priorities).apply()

    def _between(self, previous: ModulePass | None, module: ModuleOp, following: ModulePass | None) -> None:
        """Called before the first pass, between two, and behind the last."""
        seconds = time.perf_counter() - self._started
        if previous is not None and self.args.time_passes:
            self._show(f"Pass {previous.name} took {seconds} seconds\n")
        if not self.args.disable_verify:
            module.verify()
        if previous is None and self._needs_effects and self.parser is not None:
            check_effects(module)
        if self._validator is not None:
            self._validator.between(previous, module, following)
        if previous and following and self.args.print_between_passes:
            text = StringIO()
            Printer(stream=text).print_op(module)
            self._show(f"IR after {previous.name}:\n{text.getvalue()}\n\n\n\n")
        self._started = time.perf_counter()

    def _show(self, text: str) -> None:
        self._progress.write(text)
        self._messages.write(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool on `arguments` (those of the process by default); returns its exit status."""
    command_line: CommandLine | None = None
    tool: VllmIrOptMain | None = None
    try:
        command_line = parse_command_line(sys.argv[1:] if arguments is None else arguments)
        tool = VllmIrOptMain(command_line)
        with nullcontext() if _shows_tracebacks(command_line) else inputs.logging_off():
            tool.run()
    except BrokenPipeError:
        # Whoever reads the output has had enough. Python would complain about it again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001  # whatever went wrong, the user gets one line
        if _shows_tracebacks(command_line):
            traceback.print_exc()
        name = "vllm-ir-opt" if command_line is None else command_line.input_name
        state = (None, None, 0) if tool is None else (tool.module, tool.parser, tool.line_offset)
        print(error_line(error, name, *state), file=sys.stderr)
        return 1
    return 1 if tool.failed else 0


def _shows_tracebacks(command_line: CommandLine | None) -> bool:
    asked = command_line is not None and command_line.options.debug
    return bool(asked) or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")


if __name__ == "__main__":
    sys.exit(main())
