"""Values of symbolic sizes while a function runs."""

from __future__ import annotations

from collections.abc import Mapping

import sympy  # pyright: ignore[reportMissingTypeStubs]  # SymPy ships none

from vllm_ir.frontends.fx.symbols import evaluate, names_in


class Sizes:
    """The numbers that symbols stand for, learned from arguments and results."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self._values: dict[str, int] = {}

    def bind(self, stated: int | str, actual: int) -> None:
        """Learn a symbol, if `stated` is one that is not known yet."""
        if isinstance(stated, str) and stated.isidentifier():
            self.known.setdefault(stated, actual)

    def value(self, stated: int | str) -> int | None:
        """The number that a size, stride or offset is; None if it depends on symbols that are not known."""
        if isinstance(stated, int):
            return stated
        if stated not in self._values:
            if stated == "?" or not names_in(stated) <= self.known.keys():
                return None
            self._values[stated] = int(evaluate(stated, _numbers(self.known)))
        return self._values[stated]


def _numbers(known: Mapping[str, int]) -> dict[str, sympy.Expr]:
    return {name: sympy.Integer(number) for name, number in known.items()}
