"""What is claimed about the bytes of windows, against sets of bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, IntAttr, IntegerType, NoneAttr, StringAttr, f16, f32, f64
from xdsl.ir import Attribute

from vllm_ir.conversions.analysis.regions import covers, is_dense, may_overlap, same_window
from vllm_ir.dialects.vllm_ir.types import BufferType, byte_size, dimensions, offset_of, sizes_of, strides_of

Dimension = int | str
Values = Mapping[str, int]


def window(
    sizes: Sequence[Dimension], strides: Sequence[Dimension] | None = None, offset: Dimension = 0, kind: Attribute = f32
) -> BufferType:
    dynamic = any(isinstance(size, str) for size in sizes)
    return BufferType(
        ArrayAttr([IntAttr(DYNAMIC_INDEX if isinstance(size, str) else size) for size in sizes]),
        kind,
        dimensions(sizes) if dynamic else NoneAttr(),
        NoneAttr() if strides is None else dimensions(strides),
        NoneAttr() if offset == 0 else (IntAttr(offset) if isinstance(offset, int) else StringAttr(offset)),
        NoneAttr(),
    )


def number(value: Dimension, values: Values) -> int:
    return value if isinstance(value, int) else int(eval(value, {}, dict(values)))


def elements(of: BufferType, values: Values) -> list[int]:
    """The first bytes of all elements, in row-major order."""
    sizes = [number(size, values) for size in sizes_of(of)]
    strides = strides_of(of)
    if strides is None:
        steps = list(itertools.accumulate(reversed(sizes[1:]), lambda step, size: step * size, initial=1))[::-1]
    else:
        steps = [number(stride, values) for stride in strides]
    start = number(offset_of(of), values)
    positions = itertools.product(*map(range, sizes))
    width = byte_size(of.element_type)
    return [(start + sum(i * step for i, step in zip(position, steps, strict=False))) * width for position in positions]


def each_byte(of: BufferType, values: Values) -> list[int]:
    return [start + byte for start in elements(of, values) for byte in range(byte_size(of.element_type))]


def is_dense_set(every: Sequence[int]) -> bool:
    return not every or sorted(every) == list(range(min(every), max(every) + 1))


# Windows of known sizes: every answer is exact.

KINDS = [IntegerType(8), f16, f32, f64]


@st.composite
def static_windows(draw: st.DrawFn) -> BufferType:
    sizes = draw(st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, 3, 4, 5]), max_size=3))
    strides = draw(st.none() | st.lists(st.integers(0, 9), min_size=len(sizes), max_size=len(sizes)))
    return window(sizes, strides, draw(st.integers(0, 12)), draw(st.sampled_from(KINDS)))


@given(static_windows(), static_windows())
@settings(max_examples=500)
def test_windows_of_known_size(first: BufferType, second: BufferType) -> None:
    ours, theirs = each_byte(first, {}), each_byte(second, {})
    assert may_overlap(first, second) == bool(set(ours) & set(theirs))
    assert covers(first, second) == (set(ours) >= set(theirs))
    if first.element_type == second.element_type and first.shape == second.shape and ours:
        assert same_window(first, second) == (elements(first, {}) == elements(second, {}))


@given(static_windows())
@settings(max_examples=400)
def test_dense_windows_of_known_size(of: BufferType) -> None:
    assert is_dense(of) == is_dense_set(each_byte(of, {}))


@pytest.mark.slow
@given(static_windows(), static_windows())
@settings(max_examples=100_000, derandomize=False)
def test_many_windows_of_known_size(first: BufferType, second: BufferType) -> None:
    ours, theirs = set(each_byte(first, {})), set(each_byte(second, {}))
    assert may_overlap(first, second) == bool(ours & theirs)
    assert covers(first, second) == (ours >= theirs)


# Windows of sizes that are not known: what is claimed holds whatever the sizes are.

SYMBOLS = {"s0": (2, 3, 4), "s1": (2, 3, 5), "u0": (0, 1, 2, 3)}
SIZES: list[Dimension] = [1, 2, 3, "s0", "s1", "u0", "2*s0", "s0 - 1", "s0 + 1"]
FACTORS: list[Dimension] = [0, 1, 2, "s0", "s1", "u0", "s0 - 1", "s0 - 2"]


def instances(*windows: BufferType) -> Iterator[Values]:
    text = " ".join(str(of) for of in windows)
    names = [name for name in SYMBOLS if name in text]
    for values in itertools.product(*(SYMBOLS[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def times(*factors: Dimension) -> Dimension:
    known = [factor for factor in factors if factor != 1]
    if all(isinstance(factor, int) for factor in known):
        return number("*".join(map(str, known)) or "1", {})
    return "*".join(f"({factor})" for factor in known)


@st.composite
def parts_of_one(draw: st.DrawFn) -> tuple[BufferType, BufferType]:
    """Two windows that views may make of a row-major tensor: a range of each dimension, or every other element."""
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    steps = [times(*sizes[dimension + 1 :]) for dimension in range(len(sizes))]
    kind = draw(st.sampled_from([f16, f32]))

    def part() -> BufferType:
        kept = [draw(st.sampled_from([size, size, 1, 1, 2, "s0"])) for size in sizes]
        strides = [times(step, draw(st.sampled_from([1, 1, 1, 2]))) for step in steps]
        starts = [times(step, draw(st.sampled_from(FACTORS))) for step in steps]
        order = draw(st.permutations(range(len(sizes))))
        offset = " + ".join(str(start) for start in starts)
        plain = all(isinstance(start, int) for start in starts)
        return window(
            [kept[d] for d in order], [strides[d] for d in order], number(offset, {}) if plain else offset, kind
        )

    return part(), part()


def check_claims(first: BufferType, second: BufferType) -> None:
    for values in instances(first, second):
        ours, theirs = each_byte(first, values), each_byte(second, values)
        if not may_overlap(first, second):
            assert not set(ours) & set(theirs), values
        if covers(first, second):
            assert set(ours) >= set(theirs), values
        if same_window(first, second):
            assert elements(first, values) == elements(second, values), values
        if is_dense(first):
            assert is_dense_set(ours), values


@given(parts_of_one())
@settings(max_examples=250)
def test_windows_of_unknown_size(pair: tuple[BufferType, BufferType]) -> None:
    check_claims(*pair)


@pytest.mark.slow
@given(parts_of_one())
@settings(max_examples=50_000, derandomize=False)
def test_many_windows_of_unknown_size(pair: tuple[BufferType, BufferType]) -> None:
    check_claims(*pair)


# What must be decided for caches of dynamic size.


def test_layers_of_dynamic_size_are_disjoint() -> None:
    first, second = window(["s0", 4], offset=0), window(["s0", 4], offset="4*s0")
    assert not may_overlap(first, second)
    assert covers(window([2, "s0", 4]), second)
    assert not covers(first, second)


def test_rows_of_dynamic_number_are_disjoint() -> None:
    keys, values = window(["s0", 4], [8, 1]), window(["s0", 4], [8, 1], 4)
    assert not may_overlap(keys, values)
    assert may_overlap(keys, window(["s0", 4], [8, 1], 3))


def test_nothing_is_known_of_other_expressions() -> None:
    assert may_overlap(window([2], offset="s0//2"), window([2], offset=40))
    assert not covers(window(["s0"]), window(["s0//2"]))
    assert not same_window(window(["?"]), window(["?"], offset=1))


def test_what_may_be_empty_covers_nothing() -> None:
    assert not covers(window([0], [0]), window([1]))
    assert not covers(window(["u0"], [0]), window([1]))
    assert covers(window(["s0"], [0]), window([1]))
