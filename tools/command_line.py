"""The command line of `vllm-ir-opt`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import NoReturn, cast

from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import ArgSpecParseError

from vllm_ir.tools.pipelines import PASSES, PIPELINES
from vllm_ir.tools.priority_arguments import PriorityArgumentParser
from vllm_ir.tools.targets import TARGETS

DEBUG_VARIABLE = "VLLM_IR_DEBUG"
"""Environment variable that shows tracebacks of errors, as `--debug` does."""

_PYTHON = re.compile(r"(?P<path>.+\.py):(?P<name>\w+)")
_KINDS = ("mlir", "pt2", "py")


class UsageError(ValueError):
    """A command line that does not say what to do, in one line."""


@dataclass(frozen=True)
class CommandLine:
    """What a command line asks for. `options` are xDSL's, by the names that its driver gives them."""

    options: argparse.Namespace
    kind: str
    """`mlir`, `pt2` or `py`."""
    path: str | None
    """The input file; None for standard input."""
    callable: str | None
    """What to import of a Python file."""
    target: str
    """Name of the target, without its options."""
    passes: str
    output: str | None
    load: tuple[str, ...]
    priorities: Mapping[str, tuple[str, ...]]

    @property
    def input_name(self) -> str:
        """The input in error messages."""
        return self.path or "<stdin>"


class _ArgumentParser(PriorityArgumentParser):
    """Raises its errors, so that they are reported like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see vllm-ir-opt --help")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"vllm-ir-opt {version('vllm_ir')} (xdsl {version('xdsl')})")
        parser.exit()


def parse_command_line(arguments: Sequence[str]) -> CommandLine:
    """Read a command line; `UsageError` if it is wrong. `--help` and `--version` print and exit."""
    options = _parser().parse_args(arguments)
    given = cast("str | None", options.input_file)
    kind, path, name = _classify(given, cast("str | None", options.frontend))
    return CommandLine(
        options,
        kind,
        path,
        name,
        _target(cast(str, options.target)),
        cast(str, options.passes),
        cast("str | None", options.output_file),
        tuple(cast("list[str]", options.load)),
        cast("Mapping[str, tuple[str, ...]]", options.ir_op_priority),
    )


def _classify(given: str | None, frontend: str | None) -> tuple[str, str | None, str | None]:
    """Kind of input, file, and the name in it."""
    if given is None:
        if frontend not in (None, "mlir"):
            raise UsageError(f"a {frontend} input needs a file name, standard input is text")
        return "mlir", None, None
    python = _PYTHON.fullmatch(given)
    if python is not None and frontend in (None, "py"):
        return "py", python["path"], python["name"]
    if given.endswith(".py") or frontend == "py":
        raise UsageError(f"input {given!r} does not say what to import: write file.py:callable")
    suffix = given.rpartition(".")[2]
    if frontend is None and suffix not in ("mlir", "pt2"):
        raise UsageError(f"input {given!r} is neither file.mlir, file.pt2 nor file.py:callable; -f says what it is")
    return frontend or suffix, given, None


def _target(spec: str) -> str:
    try:
        name = parse_spec(spec).name
    except ArgSpecParseError as error:
        raise UsageError(f"target {spec!r}: {str(error).strip().splitlines()[-1].strip()}") from None
    if name not in TARGETS:
        raise UsageError(f"unknown target {name!r}; targets are {', '.join(TARGETS)}")
    return name


def _parser() -> argparse.ArgumentParser:
    pipelines = ", ".join(f"{name} ({passes})" for name, passes in PIPELINES.items())
    passes = f"passes ({', '.join(PASSES)}, and those of installed packages) and pipelines ({pipelines}), with commas"
    parser = _ArgumentParser(
        prog="vllm-ir-opt", description="Run passes on a module of vllm_ir and print the result.", allow_abbrev=False
    )
    add, flag = parser.add_argument, _Flags(parser)
    add("input_file", nargs="?", help="file.mlir, file.pt2 or file.py:callable; standard input by default")
    add("-f", "--frontend", choices=_KINDS, help="what the input is, where its name does not tell")
    add("-p", "--passes", default="", help=passes)
    add("-t", "--target", default="mlir", help=f"what to write: {', '.join(TARGETS)}; mlir by default")
    add("-o", "--output-file", help="where to write it; standard output by default")
    add(
        "--load",
        metavar="MODULE",
        action="append",
        default=[],
        help="Python file or module to run first, for example one that registers operators; may be repeated",
    )
    flag("--validate", "run the program before and behind each pass on generated inputs, and compare")
    add("--validate-inputs", metavar="NAME", help="the one kind of inputs to validate on, by its name in a verdict")
    add("--validate-seed", metavar="N", type=int, default=0, help="other numbers in generated inputs")
    add("--reproducers", metavar="DIR", default=".", help="where to write what shows a fault; here by default")
    flag("--bisect", "find the first pass that changes what the program does, and the first wrong rewrite in it")
    flag("--explain-fusions", "behind all passes, say what was fused where, and what came close and why it was not")
    add(
        "--check-fusions",
        nargs="*",
        metavar="FUSION",
        help="check fusions, all without names, on programs made from their examples, and read no input",
    )
    flag("--run", "interpret the result, on example_inputs() of a Python file or on generated inputs, and show outputs")
    flag("--allow-unregistered-dialect", "allow operations of unknown dialects")
    flag("--no-implicit-module", "do not put the input into a module if it is not one")
    flag("--disable-verify", "do not verify the module, neither before nor behind passes")
    flag("--verify-diagnostics", "print verification errors and failed passes as results, and go on")
    flag("--parsing-diagnostics", "print parse errors as results, and go on")
    flag("--split-input-file", "process the parts between lines of `// -----` one by one")
    flag("--print-between-passes", "print the module between passes")
    flag("--time-passes", "print how long each pass takes")
    flag("--print-op-generic", "print operations in the generic format")
    flag("--print-no-properties", "print properties as attributes")
    flag("--print-debuginfo", "print the locations of operations")
    flag("--syntax-highlight", "colour the output")
    flag("--debug", f"show tracebacks of errors; so does {DEBUG_VARIABLE}=1 in the environment")
    add("-v", "--version", action=_Version, nargs=0, help="show the version")
    return parser


class _Flags:
    """Adds options that take no value."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def __call__(self, name: str, text: str) -> None:
        self._parser.add_argument(name, action="store_true", help=text)
