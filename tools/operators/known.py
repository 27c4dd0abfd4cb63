"""Samples that do not come out right bit for bit, and why: what a sweep finds has to be this, no more and no less."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_ir.tools.operators.fx_sweep import ROUNDED, Tallies, Tally


@dataclass(frozen=True)
class Known:
    """A kind of exception.

    `outcome` is a regular expression for the outcomes that are meant. `where` are the entries, or `entry/variant`, that
    have them; None: whichever, because which samples round differently depends on the machine.
    """

    reason: str
    outcome: str
    where: tuple[str, ...] | None

    def covers(self, name: str, variant: str, outcome: str) -> bool:
        """Whether an outcome of an entry is of this kind."""
        return (self.where is None or name in self.where or f"{name}/{variant}" in self.where) and bool(
            re.match(self.outcome, outcome)
        )

    def places(self, found: Mapping[str, Tallies]) -> dict[str, int]:
        """The entries that have outcomes of this kind, with the number of samples."""
        counts: dict[str, int] = {}
        for name, variants in found.items():
            for variant, tally in variants.items():
                for outcome, count in _outcomes(tally).items():
                    if self.covers(name, variant, outcome):
                        counts[name] = counts.get(name, 0) + count
        return counts


KNOWN: tuple[Known, ...] = (
    Known(
        "it gives a Python value or a size that depends on elements, which PyTorch's fake tensors refuse",
        r"refused: aten\.\S+ gives what depends on elements|refused: local_scalar_dense/item NYI",
        (
            "allclose",
            "corrcoef",
            "cov",
            "equal",
            "item",
            "linalg.lstsq",
            "linalg.lstsq (grad_oriented)",
            "masked_select/out",
            "masked_select/out with gaps",
            "nn.functional.ctc_loss",
            "nonzero/out",
            "nonzero/out with gaps",
        ),
    ),
    Known(
        "it decides in Python by what elements are",
        r"refused: Could not (guard|extract)",
        ("nn.functional.gaussian_nll_loss", "nn.functional.one_hot", "tensor_split"),
    ),
    Known(
        "it gives a tensor that others see another size or other strides",
        r"refused: (aten\.resize_\.default changes the storage|the operator changes its operand)",
        (
            "cholesky_inverse/out with gaps",
            "nn.functional.linear/out with gaps",
            "resize_",
            "triangular_solve/out with gaps",
        ),
    ),
    Known(
        "its fake implementation gives another tensor than `out=`",
        r"refused: the fake implementation of",
        ("linalg.solve", "linalg.solve_ex"),
    ),
    Known(
        "arguments of a graph are no lazy conjugates", r"refused: input `input\d` is a lazy conjugate", ("dot", "vdot")
    ),
    Known(
        "eager mode does not write `out=` tensors with gaps; here they are written",
        r"wrong: .* results, memory$",
        (
            "narrow_copy/out with gaps",
            "nn.functional.avg_pool3d/out with gaps",
            "nn.functional.gelu/out with gaps",
        ),
    ),
    Known(
        "PyTorch takes it apart while it traces; in bf16 further off than tolerances are",
        r"wrong: .* results$",
        ("nn.functional.interpolate (bicubic)",),
    ),
    Known(
        "other kernels, which round otherwise, run for tensors with gaps and without, for tensors with dimensions of "
        "size 1, or in what PyTorch takes an operator apart into while it traces",
        ROUNDED,
        None,
    ),
)


def _outcomes(tally: Tally) -> dict[str, int]:
    return ({ROUNDED: tally.rounded} if tally.rounded else {}) | tally.others


def problems(found: Mapping[str, Tallies]) -> list[str]:
    """What is not as listed: outcomes that no exception covers, and exceptions that have not happened."""
    lines: list[str] = []
    for name, variants in found.items():
        for variant, tally in variants.items():
            for outcome, count in _outcomes(tally).items():
                if not any(known.covers(name, variant, outcome) for known in KNOWN):
                    lines.append(f"{name}/{variant}: {count} samples: {outcome}")
    for known in KNOWN:
        for place in known.where or ():
            name, _, variant = place.partition("/")
            here = {name: {v: t for v, t in found.get(name, {}).items() if variant in ("", v)}}
            if name in found and not known.places(here):
                lines.append(f"{place}: is listed as an exception but comes out right: {known.reason}")
    return lines
