"""`dot_general` and `convolution`, against XLA: integers exactly, floats within what rounding permits in any order."""

import numpy as np
import pytest

DOTS = [
    # batching and contracting dimensions of both sides, their sizes and those of the result
    ("contracting_dims = [1] x [0]", (4, 5), (5, 3), (4, 3)),
    ("batching_dims = [0] x [1], contracting_dims = [2] x [0]", (2, 4, 5), (5, 2, 3), (2, 4, 3)),
    ("batching_dims = [1, 0] x [0, 2], contracting_dims = [3, 2] x [3, 1]", (2, 3, 4, 5), (3, 4, 2, 5, 6), (3, 2, 6)),
    ("contracting_dims = [0] x [0]", (7,), (7,), ()),
    ("contracting_dims = [] x []", (2,), (3,), (2, 3)),
    ("batching_dims = [0] x [0], contracting_dims = [] x []", (3,), (3, 2), (3, 2)),
    ("contracting_dims = [1] x [1]", (2, 0), (3, 0), (2, 3)),
]
EPSILON = {"f64": 2.0**-53, "f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}


def kind_of(sizes: tuple[int, ...], name: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in sizes)}{name}>"


def random(sizes: tuple[int, ...], name: str, both, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    element = both.NAMES[name]
    if element.kind in "iu":
        return generator.integers(-100 if element.kind == "i" else 0, 100, sizes).astype(element)
    if element.kind == "c":
        return (generator.normal(size=sizes) + 1j * generator.normal(size=sizes)).astype(element)
    return generator.normal(size=sizes).astype(element)


def check(both, text: str, values: list[np.ndarray], result: str, operation: str) -> None:
    """Equal, or both within what rounding permits of the exact sums.

    A sum of n products has n roundings of products and n - 1 of sums, each of at most the sum of the sizes of all
    products: that of the same operation on absolute values. XLA accumulates narrow types in f32.
    """
    (ours,), (theirs,) = both.judged(text, values)
    if result not in EPSILON:
        both.same(operation, ours, theirs)
        return
    exact, sizes = (
        both.run(
            text.replace(f"x{result}>", "xf64>").replace(f"<{result}>", "<f64>"),
            [f(v).astype(np.float64) for v in values],
        )[0]
        for f in (lambda v: v, np.abs)
    )
    count = 2 * max(value.size for value in values)
    for found in (ours, theirs):
        error = np.abs(found.astype(np.float64) - exact)
        assert (error <= (count * min(2.0**-24, EPSILON[result]) + EPSILON[result]) * sizes).all()
    # Ours is rounded once.
    assert (
        np.abs(ours.astype(np.float64) - exact) <= EPSILON[result] * np.abs(exact) * (1 + 1e-6) + 1e-14 * sizes
    ).all()


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16", "i8", "i32", "ui64"])
@pytest.mark.parametrize(("numbers", "left", "right", "result"), DOTS)
def test_dots(numbers, left, right, result, name, both, xla) -> None:
    kinds = [kind_of(left, name), kind_of(right, name)]
    target = kind_of(result, name)
    body = f"  %r = stablehlo.dot_general %a0, %a1, {numbers} : ({kinds[0]}, {kinds[1]}) -> {target}"
    values = [random(left, name, both, 0), random(right, name, both, 1)]
    check(both, both.function(kinds, [target], body, ["%r"]), values, name, numbers)


@pytest.mark.parametrize(("given", "result"), [("bf16", "f32"), ("i8", "i32"), ("f16", "f32")])
def test_dots_of_another_type(given, result, both, xla) -> None:
    kinds, target = [kind_of((4, 300), given), kind_of((300, 3), given)], kind_of((4, 3), result)
    body = f"  %r = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : ({kinds[0]}, {kinds[1]}) -> {target}"
    values = [random((4, 300), given, both, 0), random((300, 3), given, both, 1)]
    (ours,), (theirs,) = both.judged(both.function(kinds, [target], body, ["%r"]), values)
    sizes = np.abs(values[0].astype(np.float64)) @ np.abs(values[1].astype(np.float64))
    assert ours.dtype == theirs.dtype == both.NAMES[result]
    assert (np.abs(ours.astype(np.float64) - theirs) <= (600 * 2.0**-24 * sizes if result == "f32" else 0)).all()


def test_complex_dots(both, xla) -> None:
    kind = kind_of((3, 3), "complex<f32>")
    body = f"  %r = stablehlo.dot_general %a0, %a1, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}"
    values = [random((3, 3), "complex<f32>", both, seed) for seed in (0, 1)]
    (ours,), (theirs,) = both.judged(both.function([kind, kind], [kind], body, ["%r"]), values)
    assert (np.abs(ours - theirs) <= 12 * 2.0**-24 * (np.abs(values[0]) @ np.abs(values[1]))).all()


CONVOLUTIONS = [
    # dimension numbers, sizes, window, groups of features and of the batch, sizes of the result
    ("[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", (2, 3, 7, 6), (4, 3, 3, 2), "", 1, 1, (2, 4, 5, 5)),
    (
        "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
        *(
            (2, 7, 6, 3),
            (3, 2, 3, 4),
            "window_strides = array<i64: 2, 1>, padding = dense<[[1, 0], [2, 1]]> : tensor<2x2xi64>, "
            "rhs_dilation = array<i64: 1, 3>",
            1,
            1,
        ),
        (2, 3, 6, 4),
    ),
    (
        "[f, 0, b, 1]x[i, 1, o, 0]->[1, b, f, 0]",
        *(
            (4, 5, 2, 6),
            (2, 2, 6, 3),
            "padding = dense<[[-1, 2], [0, 0]]> : tensor<2x2xi64>, "
            "lhs_dilation = array<i64: 2, 1>, window_reversal = array<i1: true, false>",
            2,
            1,
        ),
        (5, 2, 6, 8),
    ),
    ("[b, f, 0]x[o, i, 0]->[b, f, 0]", (4, 3, 5), (6, 3, 2), "window_reversal = array<i1: true>", 1, 2, (2, 6, 4)),
    ("[b, f]x[o, i]->[b, f]", (4, 3), (6, 3), "", 1, 1, (4, 6)),
    ("[b, f, 0]x[o, i, 0]->[b, f, 0]", (2, 3, 2), (4, 3, 3), "", 1, 1, (2, 4, 0)),
]


@pytest.mark.parametrize("name", ["f32", "bf16", "i32"])
@pytest.mark.parametrize(("numbers", "left", "right", "window", "features", "batches", "result"), CONVOLUTIONS)
def test_convolutions(numbers, left, right, window, features, batches, result, name, both, xla) -> None:
    kinds, target = [kind_of(left, name), kind_of(right, name)], kind_of(result, name)
    body = f"""  %r = "stablehlo.convolution"(%a0, %a1) <{{dimension_numbers = #stablehlo.conv<{numbers}>,
      feature_group_count = {features} : i64, batch_group_count = {batches} : i64{", " * bool(window)}{window}}}>
      : ({kinds[0]}, {kinds[1]}) -> {target}"""
    values = [random(left, name, both, 0), random(right, name, both, 1)]
    check(both, both.function(kinds, [target], body, ["%r"]), values, name, numbers)
