"""Arithmetic of sizes, against numbers put in for the symbols."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ir.conversions.analysis.polynomials import Number, Polynomial, divide, equal, not_greater, parse

NAMES = ["a", "b", "c"]
monomials = st.lists(st.sampled_from(NAMES), max_size=3).map(lambda names: tuple(sorted(names)))
polynomials = st.dictionaries(monomials, st.integers(-4, 4), max_size=4).map(Polynomial)
numbers = st.integers(-6, 6) | polynomials
assignments = st.fixed_dictionaries({name: st.integers(0, 7) for name in NAMES})


def value(number: Number, values: Mapping[str, int]) -> int:
    if isinstance(number, int):
        return number
    return sum(factor * prod(values[name] for name in monomial) for monomial, factor in number.terms.items())


@given(numbers, numbers, assignments)
def test_arithmetic(left: Number, right: Number, values: Mapping[str, int]) -> None:
    one, other = value(left, values), value(right, values)
    assert value(left + right, values) == one + other
    assert value(left - right, values) == one - other
    assert value(left * right, values) == one * other


@given(numbers, numbers, assignments)
def test_a_number_is_quotient_times_divisor_plus_remainder(
    number: Number, divisor: Number, values: Mapping[str, int]
) -> None:
    if equal(divisor, 0):
        return
    quotient, remainder = divide(number, divisor)
    assert value(number, values) == value(quotient, values) * value(divisor, values) + value(remainder, values)


@given(numbers, numbers, assignments)
def test_comparisons_hold_for_all_numbers(left: Number, right: Number, values: Mapping[str, int]) -> None:
    if not_greater(left, right):
        assert value(left, values) <= value(right, values)
    if equal(left, right):
        assert value(left, values) == value(right, values)


@given(numbers, numbers)
def test_a_sum_less_one_part_is_the_other(left: Number, right: Number) -> None:
    assert equal(left + right - right, left)
    assert not_greater(left, left)


@pytest.mark.parametrize(
    "text",
    ["s0", "-s0 + 7", "2*s0*u1 + 1", "s0**2 - s1", "(s0 + 1)*(s0 - 1)", "s0*(u1 + s1)", "12", "-3"],
)
@pytest.mark.parametrize("values", [{"s0": 2, "s1": 5, "u1": 0}, {"s0": 9, "s1": 2, "u1": 1}])
def test_parsed_text_has_the_value_of_the_text(text: str, values: Mapping[str, int]) -> None:
    number = parse(text)
    assert number is not None
    # Sizes are 2 at least, and stored as what they exceed that by; sizes that depend on data are 0 at least.
    excess = {name: size if name.startswith("u") else size - 2 for name, size in values.items()}
    assert value(number, excess) == eval(text, {}, dict(values))


@pytest.mark.parametrize("text", ["?", "s0//2", "Mod(s0, 2)", "s0**s1", "1.5", "Max(1, s0)", ""])
def test_other_expressions_are_not_known(text: str) -> None:
    assert parse(text) is None


def test_sizes_are_two_at_least() -> None:
    size, late = parse("s0"), parse("u0")
    assert size is not None
    assert late is not None
    assert not_greater(2, size)
    assert not not_greater(3, size)
    assert not_greater(0, late)
    assert not not_greater(1, late)
