"""What the compiler may do with a text: give a result, or stop with one line that says what is wrong and where."""

from __future__ import annotations

import builtins
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NoReturn

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.tools.failures import error_line
from vllm_ir.tools.fuzz_text.mutations import CANARY
from vllm_ir.tools.pipelines import build_passes, check_effects
from vllm_ir.tools.text import TextParser, text_context

NAME = "input.mlir"
PIPELINES: Sequence[str] = (
    "functionalize,lower,eliminate-clones",
    "alias-outputs,functionalize,convert-to-stablehlo,narrow-updates",
    "alias-outputs,functionalize,lower",
    'specialize{sizes="s0=3"},functionalize',
    "eliminate-clones",
    "lower,functionalize,eliminate-clones",
    "convert-to-stablehlo,narrow-updates",
    "narrow-updates",
    "print-aliases,print-liveness",
    "canonicalize,cse,dce",
    "functionalize,cse,dce,eliminate-clones,canonicalize",
)
_LOCATED = re.compile(rf"{re.escape(NAME)}:\d+:\d+: error: \S|\S+:\d+:\d+: error: \S")
_WHOLE = "the module has"
"""Beginning of messages about a module as a whole, which have no place."""
_DOCUMENTED = (ParseError, DiagnosticException, FxImportError)


class CanaryError(Exception):
    """Text was executed."""


class TooSlowError(BaseException):
    """The time for one input is over. No `Exception`, so that nothing takes it for a failure of its own."""


@dataclass(frozen=True)
class Finding:
    """What should not have happened."""

    stage: str
    what: str
    """One line: the kind of exception and its message."""
    details: str
    """The traceback."""

    @property
    def key(self) -> str:
        """Equal for findings that are probably one bug: the exception and the last place in our code."""
        places = re.findall(r'File "[^"]*/([\w./]+\.py)", line (\d+)', self.details)
        own = [f"{file}:{line}" for file, line in places if "site-packages" not in file]
        return f"{self.what.partition(':')[0]} {own[-1] if own else ''}"


def judge(text: str, random: Random) -> Finding | None:
    """Run a text through the compiler; `random` chooses the passes and targets. None if all is well."""
    setattr(builtins, CANARY, _canary)
    module, parser = None, None
    stage = "parse"
    try:
        parser = TextParser(text_context(), text, NAME)
        module = parser.parse_text()
        stage = "verify"
        module.verify()
        stage = "print"
        if (finding := _round_trip(module)) is not None:
            return finding
        stage = "effects"
        check_effects(module)
        for stage in _stages(random):
            if (finding := _run(stage, module, parser)) is not None:
                return finding
    except TooSlowError as error:
        return Finding(stage, "TooSlowError: no answer in time", _details(error))
    except Exception as error:  # noqa: BLE001  # which ones are documented is the question
        return _judged(error, stage, module, parser)
    return None


def _stages(random: Random) -> list[str]:
    return random.sample(PIPELINES, 2) + random.choices(("fx", "stablehlo"), (4, 1))


def _run(stage: str, module: ModuleOp, parser: TextParser) -> Finding | None:
    if stage in ("fx", "stablehlo"):
        return _attempt(stage, module, parser, lambda: _export(stage, module))
    copy = module.clone()
    done: list[str] = []
    for entry in build_passes(stage):
        done.append(entry.name)
        failed: list[bool] = []

        def apply() -> None:
            try:
                entry.apply(text_context(), copy)  # noqa: B023  # called at once
            except _DOCUMENTED:
                failed.append(True)  # noqa: B023  # called at once
                raise

        name = ",".join(done)
        if (finding := _attempt(name, copy, None, apply)) is not None or failed:
            return finding
        try:
            copy.verify()
            str(copy)
        except Exception as error:  # noqa: BLE001  # the module was valid before the pass
            return Finding(f"{name}: verification behind the pass", _one_line(error), _details(error))
    return None


def _attempt(stage: str, module: ModuleOp, parser: TextParser | None, action: Callable[[], object]) -> Finding | None:
    try:
        action()
    except TooSlowError as error:
        return Finding(stage, "TooSlowError: no answer in time", _details(error))
    except Exception as error:  # noqa: BLE001  # which ones are documented is the question
        return _judged(error, stage, module, parser)
    return None


def _export(target: str, module: ModuleOp) -> None:
    if target == "stablehlo":
        from vllm_ir.tools.stablehlo import export_stablehlo

        export_stablehlo(module).text  # noqa: B018  # making it is the test
        return
    from vllm_ir.backends.fx.export import export_fx

    graph_module = export_fx(module)
    compile(graph_module.print_readable(print_output=False), "graph", "exec")
    if re.search(rf"^[^#\"']*{CANARY}\(", graph_module.code, re.MULTILINE):
        raise CanaryError(f"{CANARY} is called by the code of the graph")


def _round_trip(module: ModuleOp) -> Finding | None:
    """What is printed reads back as the same module, in either syntax."""
    from io import StringIO

    for generic in (False, True):
        stream = StringIO()
        Printer(stream, print_generic_format=generic).print_op(module)
        printed = stream.getvalue()
        try:
            again = TextParser(text_context(), printed, NAME).parse_text()
            again.verify()
        except Exception as error:  # noqa: BLE001  # whatever it is, the text was valid
            return Finding(f"round trip, generic = {generic}", _one_line(error), f"{printed}\n{_details(error)}")
        if str(again) != str(module) or not again.is_structurally_equivalent(module):
            return Finding(f"round trip, generic = {generic}", "Different: text reads back as another module", printed)
    return None


def _judged(error: Exception, stage: str, module: ModuleOp | None, parser: TextParser | None) -> Finding | None:
    """A finding, unless the error is documented and makes one line with a place."""
    line = error_line(error, NAME, module, parser, 0)
    if str(error).startswith("there is no symbol"):  # an option of `specialize` that does not fit the module
        return None
    if isinstance(error, _DOCUMENTED) and "\n" not in line and len(line) < 20000:
        # What jaxlib says, and what the signature for XLA lacks, is about the program as a whole.
        placed = _LOCATED.match(line) or str(error).startswith(_WHOLE) or stage == "stablehlo"
        if isinstance(error, VerifyException | ParseError) and parser is not None and not placed:
            return Finding(stage, f"Unlocated: {line}", _details(error))
        return None
    return Finding(stage, _one_line(error), _details(error))


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _details(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-12))


def _canary(*_: object) -> NoReturn:
    raise CanaryError("text was executed")
