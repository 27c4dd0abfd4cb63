"""Comparing modules before and behind a pass by running both.

Both are interpreted on inputs that the signature allows: plain ones, edge values, tensors that are shared where that
makes no difference, several sizes for each symbol. What a caller can see has to agree: outputs, the final contents of
all memory, strides, and which outputs are windows onto which inputs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException

from vllm_ir.backends.interpreter.interpret import execute, is_stablehlo
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.tools.validation.generate import Parameter, Recipe, generate, parameters, recipes, static_sizes, symbols
from vllm_ir.tools.validation.observe import Difference, Observation, differences, observe
from vllm_ir.tools.validation.rounding import bounds

_OWN = ("aten", "prims", "python", "higher_order", "_c10d_functional")
Status: TypeAlias = tuple[str, str]
_REFUSALS = (ValueError, RuntimeError, DiagnosticException)
"""What a program that does not like its inputs raises."""


@dataclass
class Verdict:
    """What was found about one pass."""

    name: str
    """The pass, with its options."""
    status: str = "not run"
    """`exact`, `rounding`, `failed`, or `not run` if no inputs were found that the program takes."""
    detail: str = ""
    """What differs first, or why nothing was run."""
    error: float = 0.0
    """The largest difference that rounding explains."""
    bound: float = 0.0
    """What rounding may make of it."""
    runs: list[str] = field(default_factory=list[str])
    """Names of the inputs on which both modules ran."""
    failing: Recipe | None = None
    """The inputs that show a difference."""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """Whether nothing was found that is wrong."""
        return self.status != "failed"

    def __str__(self) -> str:
        """The verdict as a line."""
        what = {
            "exact": "exact",
            "rounding": f"rounding, largest error {self.error:.3g}, bound {self.bound:.3g}",
            "failed": f"FAILED: {self.detail}",
            "not run": f"not run: {self.detail}",
        }[self.status]
        inputs = f" ({', '.join(self.runs)}; {self.seconds:.2f} s)" if self.runs else ""
        return f"{self.name}: {what}{inputs}"


def compare(name: str, before: ModuleOp, after: ModuleOp, *, seed: int = 0, only: str | None = None) -> Verdict:
    """Run two modules on the same inputs.

    Args:
        name: the pass that made `after` of `before`.
        before: a module of `vllm_ir.func`s, or of StableHLO.
        after: the module behind the pass.
        seed: makes other inputs.
        only: the name of the one kind of inputs to use; by default, all that the signature allows.
    """
    started = time.perf_counter()
    verdict = Verdict(name)
    comparison = _Comparison(before, after, seed)
    for recipe in recipes(comparison.parameters):
        if only is None or recipe.name == only:
            comparison.run(recipe, verdict)
        if verdict.status == "failed":
            break
    verdict.seconds = time.perf_counter() - started
    return verdict


class _Comparison:
    """Two modules, and the signature that inputs are made from."""

    def __init__(self, before: ModuleOp, after: ModuleOp, seed: int) -> None:
        self.before = before
        self.after = after
        self.seed = seed
        self.values_only = is_stablehlo(after)
        self.parameters = _parameters(before, after)
        self.limits = _index_limits(before, self.parameters)

    def run(self, recipe: Recipe, verdict: Verdict) -> None:
        """Compare on one kind of inputs, and note in `verdict` what is found."""
        prepared = self._prepared(recipe)
        if isinstance(prepared, str):
            verdict.detail = verdict.detail or prepared
            return
        recipe, expected = prepared
        verdict.runs.append(recipe.name)
        status, detail = "exact", ""
        try:
            seen = self._observed(self.after, recipe)
        except _REFUSALS as error:
            status, detail = "failed", f"behind the pass, the program fails: {' '.join(str(error).split())}"
        else:
            found = list(differences(expected, seen))
            if found:
                status, detail = self._judge(recipe, expected, found, verdict)
        if status == "failed":
            verdict.status, verdict.detail, verdict.failing = status, f"{detail} (inputs: {recipe.name})", recipe
        elif verdict.status != "rounding":
            verdict.status, verdict.detail = status, ""

    def _prepared(self, recipe: Recipe) -> tuple[Recipe, Observation] | str:
        """A recipe that the program takes, with what it does then; else why it takes none."""
        reason = ""
        for position, limit in enumerate(self.limits):
            attempt = replace(recipe, indices=limit)
            try:
                expected = self._observed(self.before, attempt)
            except _REFUSALS as error:
                reason = reason or f"before the pass, the program fails: {' '.join(str(error).split())}"
            else:
                self.limits = self.limits[position:]
                return attempt, expected
        return reason

    def _observed(self, module: ModuleOp, recipe: Recipe) -> Observation:
        inputs = generate(self.parameters, recipe, self.seed)
        with torch.random.fork_rng(devices=()):  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
            torch.manual_seed(self.seed)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
            execution = execute(module, inputs, values_only=self.values_only)
        return observe(execution, inputs, values_only=self.values_only)

    def _judge(self, recipe: Recipe, expected: Observation, found: Sequence[Difference], verdict: Verdict) -> Status:
        """Whether rounding explains all differences; the status, and what it does not explain."""
        if any(difference.error is None for difference in found):
            return "failed", next(difference.text for difference in found if difference.error is None)
        inputs = generate(self.parameters, recipe, self.seed)
        try:
            allowed = bounds(self.before, inputs, expected, self.seed, values_only=self.values_only)
        except _REFUSALS as error:
            return "failed", f"{found[0].text}, and no bound is known: {' '.join(str(error).split())}"
        for difference in found:
            error, bound = difference.error or 0.0, allowed[difference.position]
            if error > bound:
                return "failed", f"{difference.text}; rounding explains {bound:.3g}"
            if error >= verdict.error:
                verdict.error, verdict.bound = error, bound
        return "rounding", ""


def _parameters(before: ModuleOp, after: ModuleOp) -> list[Parameter]:
    """The parameters of the module that takes fewer kinds of inputs: a pass may make symbolic sizes numbers."""
    one, other = parameters(before), parameters(after)
    return other if len(symbols(other)) < len(symbols(one)) else one


def _index_limits(module: ModuleOp, signature: Sequence[Parameter]) -> list[int]:
    """What integers may be below, to be tried in this order: they may be places along some dimension.

    PyTorch's operators refuse places that do not exist. Others may not, and get places that exist everywhere.
    """
    sizes = sorted(static_sizes(signature), reverse=True) or [2]
    foreign = any(isinstance(op, CallOp) and op.target.partition(".")[0] not in _OWN for op in module.walk())
    return list(dict.fromkeys([*([] if foreign else sizes[:: max(len(sizes) // 3, 1)]), sizes[-1], 1]))
