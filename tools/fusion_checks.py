"""Checking fusions by running them: `ir.check_fusions()`, `vllm-ir-opt --check-fusions`.

For every example of a fusion, and again with tensors that have gaps between their rows, the program that `before` is
has to be fused, and what comes of it has to do the same: bit for bit, or within what rounding explains, as the fusion's
class of numerics says. Programs are interpreted on inputs made from the types, infinities and NaN included. Those with
collectives run as in a group of two ranks that have the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from torch import Tensor
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.backends.interpreter.collectives import MirroredGroup
from vllm_ir.conversions.fuse import FUSED, UNFUSED, FusePass
from vllm_ir.conversions.fusion import Fusion, Numerics, using_fusions
from vllm_ir.conversions.fusion.copies import with_copies
from vllm_ir.conversions.fusion.pattern import SIMPLIFYING
from vllm_ir.conversions.fusion.scope import fusions_in_scope, fusions_named
from vllm_ir.conversions.trace import Examples, trace_callable
from vllm_ir.frontends.distributed.group_names import is_collective
from vllm_ir.frontends.fx.marked_sizes import types_of_marked
from vllm_ir.frontends.fx.marks import mark, marked_dimensions
from vllm_ir.tools.testing.cases import LAYOUTS
from vllm_ir.tools.text import text_context
from vllm_ir.tools.validation.validate import Verdict, compare
from vllm_ir.tools.validation.validator import Validator

_with_gaps = LAYOUTS["gaps between rows"]


@dataclass(frozen=True)
class FusionCheck:
    """What was found about one fusion."""

    fusion: str
    programs: int
    """How many programs were fused and compared."""
    exact: int
    """For how many of them the results were the same bits."""
    error: float
    """The largest difference, which rounding explains."""
    problem: str | None
    """What is wrong with it, on the smallest of the examples that show it; None if nothing was found."""

    def __str__(self) -> str:
        """The check as a line."""
        if self.problem is not None:
            return f"{self.fusion}: WRONG: {self.problem}"
        rest = f", largest error {self.error:.3g}" if self.exact < self.programs else ""
        return f"{self.fusion}: {self.programs} programs, {self.exact} exact{rest}"


def check_fusions(
    fusions: Iterable[str | Fusion] = (),
    *,
    most: int | None = None,
    directory: Path | str = ".",
    report: Callable[[FusionCheck], None] | None = None,
) -> list[FusionCheck]:
    """Check fusions on their examples.

    Args:
        fusions: names, or fusions that nothing else knows; without any, all that are in scope and supported.
        most: of how many programs each is checked on, at most; by default on all.
        directory: where a file is written for each fault, with the smallest program that shows it.
        report: called with each result as soon as there is one.

    Raises:
        ValueError: there is no fusion of a name, or one is no pattern.
    """
    given = list(fusions)
    added = [fusion for fusion in given if isinstance(fusion, Fusion)]
    with using_fusions(*(fusion for fusion in added if fusion not in fusions_in_scope())):
        names = [fusion if isinstance(fusion, str) else fusion.name for fusion in given]
        results: list[FusionCheck] = []
        for fusion in fusions_named(names):
            results.append(_check(fusion, most, directory))
            if report is not None:
                report(results[-1])
    return results


def _check(fusion: Fusion, most: int | None, directory: Path | str) -> FusionCheck:
    programs = exact = 0
    error = 0.0
    grid = list(_grid(fusion))
    step = 1 if most is None else -(-len(grid) // most) | 1  # odd, so that tensors with and without gaps take turns
    for arguments in sorted(grid[::step], key=_elements):
        module = _program(fusion, arguments)
        fused = module.clone()
        entry = FusePass(only=(fusion.name,), explain=True)
        entry.apply(text_context(), fused)
        if FUSED not in fused.attributes:
            reason = str(fused.attributes.get(UNFUSED, "nothing matches"))
            return FusionCheck(fusion.name, programs, exact, error, f"is not applied to {_text(arguments)}: {reason}")
        with _ranks(module):
            verdict = compare(str(entry.pipeline_pass_spec()), module, fused)
        programs += 1
        exact += verdict.status == "exact"
        error = max(error, verdict.error)
        problem = _problem(fusion, arguments, verdict)
        if problem is not None:
            where = _reproduced(entry, module, fused, directory)
            return FusionCheck(fusion.name, programs, exact, error, f"{problem} on {_text(arguments)}{where}")
    return FusionCheck(fusion.name, programs, exact, error, None)


def _ranks(module: ModuleOp) -> AbstractContextManager[object]:
    """What collectives of a program meet in."""
    return MirroredGroup() if any(map(is_collective, module.walk())) else nullcontext()


def _problem(fusion: Fusion, arguments: tuple[object, ...], verdict: Verdict) -> str | None:
    if verdict.status == "failed":
        return verdict.detail
    if verdict.status == "not run":
        return f"the program does not run: {verdict.detail}"
    numerics = fusion.numerics_of(arguments)
    if verdict.status == "rounding" and numerics is Numerics.EXACT:
        return f"results differ by {verdict.error:.3g}, the fusion is declared exact,"
    return None


def _grid(fusion: Fusion) -> Iterator[tuple[object, ...]]:
    for arguments in fusion.examples():
        yield arguments
        if any(map(_has_rows, arguments)):
            yield tuple(
                mark(_with_gaps(argument), marked_dimensions(argument)) if _has_rows(argument) else argument
                for argument in arguments
            )


def _has_rows(argument: object) -> TypeGuard[Tensor]:
    return isinstance(argument, Tensor) and argument.dim() > 1


def _elements(arguments: tuple[object, ...]) -> int:
    return sum(argument.numel() for argument in arguments if isinstance(argument, Tensor))


def _program(fusion: Fusion, arguments: tuple[object, ...]) -> ModuleOp:
    """`before` on these arguments as a module; its tensors are the arguments of the module."""
    positions = [index for index, argument in enumerate(arguments) if isinstance(argument, Tensor)]
    kinds = list(types_of_marked(argument for argument in arguments if isinstance(argument, Tensor)))

    def call(*tensors: object) -> object:
        filled = list(arguments)
        for index, tensor in zip(positions, tensors, strict=True):
            filled[index] = tensor
        return with_copies(fusion.before(*filled))

    module = trace_callable(call, kinds, Examples(), pure=True, passes=SIMPLIFYING).function.parent_op()
    if not isinstance(module, ModuleOp):
        raise TypeError("a traced function is not in a module")
    return module


def _reproduced(entry: FusePass, module: ModuleOp, fused: ModuleOp, directory: Path | str) -> str:
    """Where the smallest program that shows a fault was written; empty if that is a matter of declarations alone."""
    try:
        Validator(directory, reduce_seconds=20.0).check(entry, module, fused)
    except PassFailedException as error:
        return f"; {str(error).rpartition('; ')[2]}"
    return ""


def _text(arguments: Sequence[object]) -> str:
    return f"({', '.join(_argument_text(argument) for argument in arguments)})"


def _argument_text(argument: object) -> str:
    if isinstance(argument, Tensor):
        gaps = "" if argument.is_contiguous() else f" with strides {list(argument.stride())}"
        return f"{str(argument.dtype).removeprefix('torch.')}{list(argument.shape)}{gaps}"
    return getattr(argument, "__name__", repr(argument))
