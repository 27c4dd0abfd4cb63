"""Finding the first wrong pass of a pipeline, and in it the first wrong rewrite.

Passes count their rewrites and can be told to stop behind any of them (`conversions/rewrites.py`). What is right is for
a check to say, which compares two modules. xDSL's own passes, and the conversion to StableHLO, of which no half is a
module, have no limit: of these only the pass is found.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.printer import Printer
from xdsl.utils.arg_spec import ArgSpec

from vllm_ir.backends.fx.export import main_function
from vllm_ir.conversions.rewrites import LimitedPass, Site
from vllm_ir.dialects.vllm_ir.types import element_type_of, sizes_of
from vllm_ir.frontends.fx.types import is_shaped
from vllm_ir.tools.files import write_whole
from vllm_ir.tools.pipelines import build_passes, check_effects, expand, needs_torch, pass_class
from vllm_ir.tools.text import text_context

Check: TypeAlias = Callable[[ModuleOp, ModuleOp], object]
"""Compares what two modules do; what it returns is true if the second does what the first does."""


@dataclass(frozen=True)
class BisectResult:
    """The first wrong pass of a pipeline, and the first wrong rewrite in it."""

    position: int | None = None
    """Which pass of the pipeline it is, named pipelines expanded; None if all passes are right."""
    spec: str = ""
    """The pass with its options. They limit it to the wrong rewrite and those before, if that is known."""
    rewrite: int | None = None
    """The number of the wrong rewrite, from 1 on. 0 if the pass is wrong without any, None if it is not known."""
    rewrites: int = 0
    """How many rewrites the pass does."""
    site: Site | None = None
    """The wrong rewrite."""
    verdict: object = None
    """What the check said of the wrong result, or the exception that the pass, or the verifier, raised."""
    note: str = ""
    """Why there is no number, or what it does not say."""
    before: ModuleOp | None = None
    """The module that the wrong pass was given."""
    command: str = ""
    """A command line that shows the fault again."""

    @property
    def is_right(self) -> bool:
        """Whether no pass is wrong."""
        return self.position is None

    def __str__(self) -> str:
        """A few lines for the user."""
        if self.position is None:
            return "no pass is wrong"
        lines = [f"pass {self.position + 1}, {self.spec}, is wrong: {' '.join(str(self.verdict).split())}"]
        if self.rewrite is not None:
            lines.append(f"rewrite {self.rewrite} of {self.rewrites}{f': {self.site}' if self.site else ''}")
        lines += [self.note] if self.note else []
        return "\n".join([*lines, self.command])


def bisect(
    module: ModuleOp,
    spec: str,
    check: Check,
    *,
    output: Path | str = "before.mlir",
    options: Sequence[str] = (),
    report: Callable[[str], None] | None = None,
) -> BisectResult:
    """Run a pipeline pass by pass on clones of a module, until one is wrong, and then that one with limits.

    A pass that raises an exception, or gives a module that is not valid, is wrong as well. Its result is compared with
    what the pipeline was given; behind a pass that changes the signature, with what that one gave.

    Args:
        module: what the pipeline is given; it stays as it is.
        spec: the pipeline.
        check: see `Check`.
        output: the file that the module in front of the wrong pass is written to, if a pass is wrong.
        options: further options of `vllm-ir-opt` that the command needs, such as `--load` and `--ir-op-priority.*`.
        report: called with a line for each run of a pass.

    Raises:
        ValueError: the pipeline is malformed.
        VerifyException: the module is not valid, or its calls claim other effects than PyTorch's schemas state.
    """
    build_passes(spec)
    module.verify()
    if needs_torch(spec):
        check_effects(module)
    search = _Search(module.clone(), check, report)
    for position, entry in enumerate(expand(spec)):
        if (run := search.run(entry)).verdict is None:
            search.go_on(run)
            continue
        found = replace(search.within(entry, run), position=position, before=search.before)
        write_whole(Path(output), located_text(search.before).encode())
        command = ["vllm-ir-opt", str(output), "-p", found.spec, "--validate", *options]
        return replace(found, command=shlex.join(command))
    return BisectResult()


@dataclass(frozen=True)
class _Run:
    """One run of a pass."""

    after: ModuleOp
    rewrites: int
    """How many there were."""
    site: Site | None
    """The last one, if the run was limited."""
    verdict: object
    """What is wrong with the result; None if nothing is."""


class _Search:
    def __init__(self, module: ModuleOp, check: Check, report: Callable[[str], None] | None) -> None:
        self.before = module
        self.context: Context = text_context()
        self._reference = module
        """What results are compared with, as long as they have the same signature."""
        self._check = check
        self._report = report

    def run(self, entry: ArgSpec) -> _Run:
        """Run a pass on a clone of what is before it, and judge the result."""
        pass_ = pass_class(entry.name).from_spec(entry)
        after = self.before.clone()
        wrong: object
        try:
            pass_.apply(self.context, after)
            after.verify()
        except Exception as error:  # noqa: BLE001  # whatever a wrong pass raises
            wrong = error
        else:
            verdict = self._check(self._base(after), after)
            wrong = None if verdict else _Wrong(verdict)
        if self._report is not None:
            self._report(f"{entry}: {'right' if wrong is None else 'wrong'}")
        counted = pass_.rewrites if isinstance(pass_, LimitedPass) else None
        return _Run(after, counted.done if counted else 0, counted.last if counted else None, wrong)

    def go_on(self, run: _Run) -> None:
        """Make the result of a right pass what the next one is given."""
        self._reference = self._base(run.after) if same_signature(self._reference, run.after) else run.after
        self.before = run.after

    def _base(self, after: ModuleOp) -> ModuleOp:
        return self._reference if same_signature(self._reference, after) else self.before

    def within(self, entry: ArgSpec, whole: _Run) -> BisectResult:
        """The first wrong rewrite of a pass that is wrong as a `whole`."""
        found = BisectResult(spec=str(entry), rewrites=whole.rewrites, verdict=_said(whole.verdict))
        if not issubclass(pass_class(entry.name), LimitedPass):
            return replace(found, note=f"pass {entry.name!r} has no limit of rewrites")
        # The search rests on both ends: nothing is wrong without rewrites, and something is with all of them.
        if (run := self.run(_limited(entry, 0))).verdict is not None:
            note = "the pass is wrong without any rewrite"
            return replace(found, spec=str(_limited(entry, 0)), rewrite=0, verdict=_said(run.verdict), note=note)
        wrong = self.run(_limited(entry, whole.rewrites)) if whole.rewrites else run
        if wrong.verdict is None:
            return replace(found, note=f"with limit={whole.rewrites}, all of its rewrites, the pass is right")
        right, number = 0, whole.rewrites
        while number - right > 1:
            middle = (right + number) // 2
            run = self.run(_limited(entry, middle))
            if run.verdict is None:
                right = middle
            else:
                wrong, number = run, middle
        return replace(
            found,
            spec=str(_limited(entry, number)),
            rewrite=number,
            site=wrong.site,
            verdict=_said(wrong.verdict),
        )


@dataclass(frozen=True)
class _Wrong:
    """A verdict of the check, which is false by itself."""

    verdict: object


def _said(wrong: object) -> object:
    return wrong.verdict if isinstance(wrong, _Wrong) else wrong


def _limited(entry: ArgSpec, limit: int) -> ArgSpec:
    return ArgSpec(entry.name, {**entry.parameters, "limit": (limit,)})


def same_signature(one: ModuleOp, other: ModuleOp) -> bool:
    """Whether callers can pass the same inputs to two modules, and get outputs of the same structure."""
    return _signature(one) == _signature(other)


def _signature(module: ModuleOp) -> object:
    for function in module.body.block.ops:
        if isinstance(function, func.FuncOp):
            return function.function_type
    main = main_function(module)
    return [_kind(argument.type) for argument in main.block.args], main.original_output_count, main.terminator.structure


def _kind(type_: Attribute) -> object:
    """What of an argument's type its caller sees: a value is passed like memory that holds it."""
    return (element_type_of(type_), tuple(sizes_of(type_))) if is_shaped(type_) else type_


def located_text(module: ModuleOp) -> str:
    """The text of a module with the locations of its operations."""
    text = StringIO()
    Printer(stream=text, print_debuginfo=True).print_op(module)
    return f"{text.getvalue()}\n"
