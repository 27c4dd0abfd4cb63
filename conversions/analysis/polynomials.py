"""Sizes that are not known at compile time, as polynomials over numbers that are not negative.

Regions of memory are compared thousands of times in a compilation, by sums, products and signs alone. SymPy takes
milliseconds for one such comparison.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.vllm_ir.expressions import parsed

Monomial: TypeAlias = tuple[str, ...]
"""Names of the factors, sorted; one name for each power."""
Number: TypeAlias = "int | Polynomial"

_MOST_TERMS = 1024


class Polynomial:
    """A sum of integer multiples of products of size symbols, none of which is negative."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {monomial: factor for monomial, factor in terms.items() if factor}

    def __add__(self, other: Number) -> Polynomial:
        terms = dict(self.terms)
        for monomial, factor in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return Polynomial(terms)

    def __mul__(self, other: Number) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for one, factor in self.terms.items():
            for two, times in _terms(other).items():
                monomial = tuple(sorted(one + two))
                terms[monomial] = terms.get(monomial, 0) + factor * times
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: Number) -> Polynomial:
        return self + other * -1

    def __rsub__(self, other: Number) -> Polynomial:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__


def _terms(number: Number) -> Mapping[Monomial, int]:
    return number.terms if isinstance(number, Polynomial) else {(): number}


def not_greater(left: Number, right: Number) -> bool:
    """Whether `left <= right` is certain."""
    if isinstance(left, int) and isinstance(right, int):
        return left <= right
    return all(factor >= 0 for factor in (Polynomial(_terms(right)) - left).terms.values())


def equal(left: Number, right: Number) -> bool:
    """Whether two numbers are the same for certain."""
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return not (Polynomial(_terms(right)) - left).terms


def divide(number: Number, divisor: Number) -> tuple[Number, Number]:
    """A quotient and a remainder: `number == quotient * divisor + remainder`; what does not divide is left over."""
    if isinstance(number, int) and isinstance(divisor, int):
        return divmod(number, divisor)
    rest, known = Polynomial(_terms(number)), Polynomial(_terms(divisor))
    leading = max(known.terms, key=_order)
    quotient, remainder = Polynomial({}), Polynomial({})
    while rest.terms:
        first = max(rest.terms, key=_order)
        factor = _quotient(first, leading)
        times, over = divmod(rest.terms[first], known.terms[leading])
        if factor is None or over:
            part = Polynomial({first: rest.terms[first]})
            remainder, rest = remainder + part, rest - part
        else:
            part = Polynomial({factor: times})
            quotient, rest = quotient + part, rest - part * known
    return quotient, remainder


def _order(monomial: Monomial) -> tuple[int, Monomial]:
    return len(monomial), monomial


def _quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(monomial)
    for name in divisor:
        if name not in left:
            return None
        left.remove(name)
    return tuple(left)


@lru_cache(maxsize=4096)
def parse(text: str) -> Number | None:
    """The polynomial that SymPy printed; None if it is none (`s0//2`), or if nothing is known of the number (`?`)."""
    try:
        return _read(parsed(text))
    except (VerifyException, ValueError):
        return None


def _read(tree: ast.expr) -> Number:
    match tree:
        case ast.Constant(int() as value):
            return value
        case ast.Name(name):
            # PyTorch makes sizes of 0 and 1 constants (`specialize_zero_one` of its `ShapeEnv`), unless they depend on
            # data (`u0`).
            return Polynomial({(name,): 1, (): 0 if name.startswith("u") else 2})
        case ast.UnaryOp(ast.USub(), operand):
            return _read(operand) * -1
        case ast.BinOp(left, ast.Add(), right):
            return _read(left) + _read(right)
        case ast.BinOp(left, ast.Sub(), right):
            return _read(left) - _read(right)
        case ast.BinOp(left, ast.Mult(), right):
            return _product(_read(left), _read(right))
        case ast.BinOp(left, ast.Pow(), ast.Constant(int() as power)) if power >= 0:
            result: Number = 1
            for _ in range(power):
                result = _product(result, _read(left))
            return result
        case _:
            raise ValueError(ast.unparse(tree))


def _product(left: Number, right: Number) -> Number:
    """The product; `ValueError` if it has more terms than are worth comparing, as products of many sums have."""
    if len(_terms(left)) * len(_terms(right)) > _MOST_TERMS:
        raise ValueError("too many terms")
    return left * right
