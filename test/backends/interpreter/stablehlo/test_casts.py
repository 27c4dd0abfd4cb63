"""Conversions among all types, against XLA.

XLA's CPU client differs where f64 goes to a type narrower than f32: it goes by f32 and rounds twice. And complex
numbers without a real part it converts to false.
"""

import numpy as np
import pytest

NARROW_FLOATS = ["f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ"]
MORE = {
    "f64": [3e38, 300.0, -1.5e10, 9.3e18, 1e30, 2.0**31 - 0.5, 2.0**31, -(2.0**63), 2.0**64],
    "f32": [
        448,
        464,
        465,
        480,
        57344,
        61440,
        61441,
        127.9,
        -128.9,
        -129,
        255.9,
        256,
        2.0**31,
        2.0**63,
        -(2.0**63),
        1e20,
    ],
    "i64": [257, 2**24 + 1, 3 * 2**25 + 5, 65535, 2**53 + 1, 2**40 + 2**31 + 1, 2**56 + 2**47 + 1, 2**62 + 2**53 + 1],
    "i32": [257, 2**24 + 1, 2**24 + 2**15 + 1, 65535],
}


@pytest.mark.parametrize(
    "source", ["f64", "f32", "bf16", "f16", "i8", "i32", "i64", "ui8", "ui64", "i1", "complex<f32>"]
)
def test_conversions(source: str, both, xla) -> None:
    targets = [
        name for name in both.NAMES if name not in ("f8E8M0FNU", source) and not (source[0] == "c" and name == "i1")
    ]
    with np.errstate(over="ignore"):
        more = np.array(MORE.get(source, [])).astype(both.NAMES[source])
    numbers = np.concatenate([both.edges(source), more])
    if source == "f64":
        numbers = numbers[numbers == 0].tolist() + [x for x in numbers if not abs(x) < 1e-30]  # not subnormal in f32
        numbers = np.array(numbers)
    given = f"tensor<{numbers.size}x{source}>"
    lines = {}
    for target in targets:
        kind = f"tensor<{numbers.size}x{target}>"
        lines[target] = (f"stablehlo.convert %a0 : ({given}) -> {kind}", kind)
    ours, theirs = both.judged(both.all_of(lines, [given]), [numbers])
    for target, one, other in zip(lines, ours, theirs, strict=True):
        both.same(f"{source} to {target}", one, other)


@pytest.mark.parametrize("source", NARROW_FLOATS)
def test_all_numbers_of_8_bits(source: str, both, xla) -> None:
    numbers = np.arange(256, dtype=np.uint8).view(both.NAMES[source])
    given = f"tensor<256x{source}>"
    lines = {
        target: (f"stablehlo.convert %a0 : ({given}) -> tensor<256x{target}>", f"tensor<256x{target}>")
        for target in [*both.FLOATS, *NARROW_FLOATS, "i8", "i32", "ui8"]
        if target != source
    }
    ours, theirs = both.judged(both.all_of(lines, [given]), [numbers])
    for target, one, other in zip(lines, ours, theirs, strict=True):
        both.same(f"{source} to {target}", one, other)


def converted(both, source: str, target: str, numbers: list[float]) -> list[float]:
    given, kind = f"tensor<{len(numbers)}x{source}>", f"tensor<{len(numbers)}x{target}>"
    text = both.all_of({"": (f"stablehlo.convert %a0 : ({given}) -> {kind}", kind)}, [given])
    (result,) = both.run(text, [np.array(numbers, both.NAMES[source])])
    return result.astype(np.float64).tolist()


def test_roundings_happen_once(both) -> None:
    """Numbers a little beyond the middle between two, which `float32` rounds to the middle."""
    half = 2.0**-8  # of what bf16 has behind 1
    assert converted(both, "f64", "bf16", [1 + half + 2**-40, 1 + half, 1 + half - 2**-40]) == [1 + 2 * half, 1, 1]
    assert converted(both, "f64", "bf16", [-1 - half - 2**-40, 1 + 3 * half - 2**-40]) == [-1 - 2 * half, 1 + 2 * half]
    assert converted(both, "f64", "f16", [65519.999, 65520]) == [65504, np.inf]
    assert converted(both, "f64", "bf16", [1e300, -1e-300, 1e-46]) == [np.inf, 0, 0]
    large = 2**62 + 2**54
    assert converted(both, "i64", "bf16", [large + 1, large, -large - 1]) == [2**62 + 2**55, 2**62, -(2**62) - 2**55]
    assert converted(both, "ui64", "bf16", [2**63 + 2**55 + 1]) == [2**63 + 2**56]


def test_complex_numbers_that_are_not_zero_are_true(both) -> None:
    assert converted(both, "complex<f32>", "i1", [1j, 0, 1]) == [1, 0, 1]


BITCASTS = [
    ("4xf32", "4xi32"),
    ("4xi32", "4xf32"),
    ("4xbf16", "4xui16"),
    ("4xf8E4M3FN", "4xi8"),
    ("3x2xf32", "3xf64"),
    ("3xi64", "3x2xf32"),
    ("3xf32", "3x4xi8"),
    ("4xi8", "i32"),
    ("f64", "8xui8"),
    ("0x2xf32", "0xf64"),
]


@pytest.mark.parametrize(("given", "result"), BITCASTS)
def test_bitcasts(given: str, result: str, both, xla) -> None:
    *sizes, name = given.split("x")
    element = both.NAMES[name]
    bits = np.random.default_rng(0).integers(0, 100, [*map(int, sizes), element.itemsize], np.uint8)
    numbers = bits.view(element)[..., 0]
    kind = f"tensor<{result}>"
    lines = {"": (f"stablehlo.bitcast_convert %a0 : (tensor<{given}>) -> {kind}", kind)}
    (ours,), (theirs,) = both.judged(both.all_of(lines, [f"tensor<{given}>"]), [numbers])
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize(
    ("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (5, 2), (8, 23), (3, 30), (2, 0), (11, 52)]
)
def test_reduced_precision(exponent: int, mantissa: int, both, xla) -> None:
    for name in ("f32", "f64", "bf16", "f16"):
        numbers = np.concatenate([both.edges(name), np.random.default_rng(0).normal(size=50).astype(both.NAMES[name])])
        kind = f"tensor<{numbers.size}x{name}>"
        lines = {"": (f"stablehlo.reduce_precision %a0, format = e{exponent}m{mantissa} : {kind}", kind)}
        (ours,), (theirs,) = both.judged(both.all_of(lines, [kind]), [numbers])
        both.same(f"{name} as e{exponent}m{mantissa}", ours, theirs)
