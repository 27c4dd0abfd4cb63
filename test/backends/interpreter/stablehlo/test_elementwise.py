"""Elementwise operations on edge values of all types, against XLA: bit for bit where the result is defined exactly.

XLA's CPU client differs from the specification, and from the evaluator, in what is left out here:

* it sets subnormal numbers to zero (both sides are compared so);
* it computes functions of 8-bit types in f16 and rounds twice;
* `power` of integers is wrong for exponents of more than a few bits, and takes unsigned ones for signed;
* complex numbers: the side of a branch cut that a zero with a sign is on, division by zero, powers of zero; and their
  maximum and minimum are not the lexicographic ones where real parts are equal.
"""

import numpy as np
import pytest

TOTAL = "TOTALORDER"
DIRECTIONS = ["EQ", "NE", "LT", "LE", "GT", "GE"]
UNARY = ["abs", "negate", "ceil", "floor", "sign", "round_nearest_afz", "round_nearest_even"]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder"]
ON_BITS = ["and", "or", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"]
FUNCTIONS = ["exponential", "exponential_minus_one", "log", "log_plus_one", "logistic", "sine", "cosine", "tan", "tanh"]
ROOTS = ["sqrt", "rsqrt", "cbrt"]


def check(both, lines, kinds, arrays, relative=0.0):
    """All operations of one text: `{name: (operation, type of its result)}`."""
    ours, theirs = both.judged(both.all_of(lines, kinds), arrays)
    for name, one, other in zip(lines, ours, theirs, strict=True):
        both.same(f"{name} of {kinds}", one, other, relative)


def like(operations, operands, kind):
    return {name: (f"stablehlo.{name} {operands} : {kind}", kind) for name in operations}


def comparisons(kind, bits, how=None):
    total = f", {how}" if how else ""
    return {
        f"{direction}{total}": (f"stablehlo.compare {direction}, %a0, %a1{total} : ({kind}, {kind}) -> {bits}", bits)
        for direction in DIRECTIONS
    }


@pytest.mark.parametrize("name", ["f64", "f32", "bf16", "f16", "f8E4M3FN", "f8E5M2"])
def test_exact_operations_on_floats(name: str, both, xla) -> None:
    left, right = both.pairs(name)
    kind, bits = f"tensor<{left.size}x{name}>", f"tensor<{left.size}xi1>"
    lines = like(UNARY, "%a0", kind) | like(BINARY, "%a0, %a1", kind) | comparisons(kind, bits)
    lines |= comparisons(kind, bits, TOTAL)
    lines["is_finite"] = (f"stablehlo.is_finite %a0 : ({kind}) -> {bits}", bits)
    lines["clamp"] = (f"stablehlo.clamp %a2, %a0, %a1 : {kind}", kind)
    lines["select"] = (f"stablehlo.select %a3, %a0, %a1 : {bits}, {kind}", kind)
    generator = np.random.default_rng(0)
    arrays = [left, right, generator.permutation(left), generator.integers(0, 2, left.size).astype(np.bool_)]
    check(both, lines, [kind, kind, kind, bits], arrays)


@pytest.mark.parametrize("name", ["f64", "f32", "bf16", "f16"])
def test_functions_of_floats(name: str, both, xla) -> None:
    """XLA's are approximations, of which `RELATIVE` says how good they are."""
    left, right = both.pairs(name)
    kind = f"tensor<{left.size}x{name}>"
    lines = like([*FUNCTIONS, *ROOTS], "%a0", kind) | like(["power", "atan2"], "%a0, %a1", kind)
    check(both, lines, [kind, kind], [left, right], both.RELATIVE[name])


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "i1"])
def test_integers(name: str, both, xla) -> None:
    left, right = both.pairs(name)
    kind, bits = f"tensor<{left.size}x{name}>", f"tensor<{left.size}xi1>"
    lines = comparisons(kind, bits) | like(["not"], "%a0", kind)
    if name == "i1":
        lines |= like(["add", "multiply", "maximum", "minimum", "and", "or", "xor"], "%a0, %a1", kind)
    else:
        signed = ["abs", "sign"] if name.startswith("i") else []
        lines |= like([*signed, "negate", "popcnt", "count_leading_zeros"], "%a0", kind)
        lines |= like([*BINARY, *ON_BITS], "%a0, %a1", kind)
        lines["clamp"] = (f"stablehlo.clamp %a1, %a0, %a1 : {kind}", kind)
    check(both, lines, [kind, kind], [left, right])


@pytest.mark.parametrize("name", ["i8", "i32", "i64", "ui8", "ui64"])
def test_powers_of_integers(name: str, both, xla) -> None:
    bases = both.edges(name)
    exponents = np.array([0, 1, 2, 3, 5, 8, 13, *([-1, -2, -3] if name[0] == "i" else [])], bases.dtype)
    left, right = (array.reshape(-1) for array in np.meshgrid(bases, exponents))
    kind = f"tensor<{left.size}x{name}>"
    check(both, like(["power"], "%a0, %a1", kind), [kind, kind], [left, right])


def test_powers_of_integers_with_large_exponents(both) -> None:
    """Modulo the size of the type: 3 to the power of -1 modulo 2**30, the order of 3, is its inverse."""
    kind = "tensor<3xi32>"
    text = both.all_of(like(["power"], "%a0, %a1", kind), [kind, kind])
    (result,) = both.run(text, [np.array([3, 2, -1], np.int32), np.array([2**31 - 1] * 3, np.int32)])
    assert (result[0] * np.int32(3), *result[1:]) == (1, 0, -1)


@pytest.mark.parametrize("part", ["f32", "f64"])
def test_complex_numbers(part: str, both, xla) -> None:
    name = f"complex<{part}>"
    left, right = both.pairs(name)
    both_finite = (right != 0) & (left != 0) & ~(np.signbit(left.imag) & (left.imag == 0))
    left, right = left[both_finite], right[both_finite]
    kind, real, bits = (f"tensor<{left.size}x{element}>" for element in (name, part, "i1"))
    lines = like(["add", "subtract", "negate"], "%a0, %a1", kind)
    lines["negate"] = (f"stablehlo.negate %a0 : {kind}", kind)
    lines |= {operation: (f"stablehlo.{operation} %a0 : ({kind}) -> {real}", real) for operation in ("real", "imag")}
    lines["complex"] = (f"stablehlo.complex %a2, %a2 : {kind}", kind)
    lines |= {
        direction: (f"stablehlo.compare {direction}, %a0, %a1 : ({kind}, {kind}) -> {bits}", bits)
        for direction in ("EQ", "NE")
    }
    arrays = [left, right, left.real.copy()]
    check(both, lines, [kind, kind, real], arrays)
    rounded = like([*FUNCTIONS, "sqrt", "rsqrt", "sign"], "%a0", kind) | like(["multiply", "divide"], "%a0, %a1", kind)
    rounded["abs"] = (f"stablehlo.abs %a0 : ({kind}) -> {real}", real)
    ours, theirs = both.judged(both.all_of(rounded, [kind, kind, real]), arrays)
    for operation, one, other in zip(rounded, ours, theirs, strict=True):
        # Parts may cancel: the error of each is that of the whole number.
        error, size = np.abs(one - other), np.abs(other)
        assert (error <= both.RELATIVE[name] * size)[np.isfinite(size)].all(), operation


def test_order_of_complex_numbers(both) -> None:
    kind, bits = "tensor<4xcomplex<f32>>", "tensor<4xi1>"
    left, right = (
        np.array([1 + 2j, 1 + 2j, 1 + 3j, 2], np.complex64),
        np.array([1 + 3j, 1 + 2j, 2, 1 + 9j], np.complex64),
    )
    lines = comparisons(kind, bits) | like(["maximum", "minimum"], "%a0, %a1", kind)
    results = dict(zip(lines, both.run(both.all_of(lines, [kind, kind]), [left, right]), strict=True))
    assert results["LT"].tolist() == [True, False, True, False]
    assert results["LE"].tolist() == [True, True, True, False]
    assert results["GT"].tolist() == [False, False, False, True]
    assert results["GE"].tolist() == [False, True, False, True]
    assert results["maximum"].tolist() == [1 + 3j, 1 + 2j, 2, 2]
    assert results["minimum"].tolist() == [1 + 2j, 1 + 2j, 1 + 3j, 1 + 9j]


def test_zeros_have_an_order(both) -> None:
    """Also where they are elements of a type that numpy does not calculate in."""
    for name in ("f32", "bf16", "f8E5M2"):
        kind = f"tensor<2x{name}>"
        text = both.all_of(like(["maximum", "minimum"], "%a0, %a1", kind), [kind, kind])
        zeros = np.array([0.0, -0.0], both.NAMES[name])
        largest, smallest = both.run(text, [zeros, zeros[::-1].copy()])
        assert not np.signbit(largest.astype(np.float32)).any()
        assert np.signbit(smallest.astype(np.float32)).all()
