"""The texts that mutation starts from: those of the lit tests, and programs as the import and the passes print them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.frontends.fx.importer import import_callable
from vllm_ir.tools.pipelines import run_passes

_COMMENT = re.compile(r"^\s*//(?! -----).*\n?", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:vllm_ir|func)\.func .*?^\}$", re.MULTILINE | re.DOTALL)
_STAGES = (
    "",
    "functionalize",
    "functionalize,lower,eliminate-clones",
    "alias-outputs,functionalize,convert-to-stablehlo",
)


def corpus(folder: Path) -> list[str]:
    """All starting points, without doubles, in a fixed order; `folder` holds lit tests, at any depth."""
    return sorted({*lit_texts(folder), *_programs()})


def lit_texts(folder: Path) -> Iterator[str]:
    """The modules in the lit tests below a folder, without comments."""
    for path in sorted(folder.rglob("*.mlir")):
        for chunk in path.read_text(encoding="utf-8").split("// -----\n"):
            text = _COMMENT.sub("", chunk).strip()
            functions = _FUNCTION.findall(text)
            # Texts of one function each run faster; those that call each other belong together.
            alone = len(functions) > 1 and not any(f"{_name(name)}," in text for name in functions)
            yield from functions if alone else [text]


def _name(function: str) -> str:
    return function[function.index("@") : function.index("(")]


def _programs() -> Iterator[str]:
    for program, inputs in _PROGRAMS:
        for passes in _STAGES:
            try:
                yield str(run_passes(import_callable(program, *inputs()), passes))
            except PassFailedException:  # not every program has every form
                continue


def _write_rows(cache: Tensor, new: Tensor, position: Tensor) -> Tensor:
    cache[0].index_copy_(0, position, new)
    return cache[0].sum(-1)


def _views(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    first, _, third = x.chunk(3)
    first.add_(y)
    third.copy_(first.flip(-1))
    x.t()[1].mul_(2)
    return x[1:], torch.as_strided(x, (2, 2), (4, 1), 1)


def _branches(x: Tensor, flag: Tensor) -> Tensor:
    def positive(x: Tensor) -> Tensor:
        return x + 1

    def negative(x: Tensor) -> Tensor:
        return x - 1

    result: Tensor = torch.cond(flag, positive, negative, (x,))  # pyright: ignore[reportUnknownMemberType]  # untyped
    return result


def _random(x: Tensor) -> list[Tensor]:
    return [torch.bernoulli(x), torch.nn.functional.dropout(x), torch.tensor([1.0, 2.0]) + x[:2]]


_PROGRAMS: tuple[tuple[Callable[..., object], Callable[[], tuple[Tensor, ...]]], ...] = (
    (_write_rows, lambda: (torch.zeros(2, 6, 4), torch.ones(1, 4), torch.tensor([3]))),
    (_views, lambda: (torch.zeros(6, 4), torch.ones(2, 4))),
    (_branches, lambda: (torch.zeros(3), torch.tensor(True))),
    (_random, lambda: (torch.ones(4),)),
)
