"""Reductions, windows and sorting, against XLA. Sums of integers, and extremes, do not depend on the order; for sums of
floats both sides are within what rounding permits in any order."""

import numpy as np
import pytest


def region(operation: str, kind: str) -> str:
    return f"""({{
  ^bb0(%x: {kind}, %y: {kind}):
    %z = stablehlo.{operation} %x, %y : {kind}
    stablehlo.return %z : {kind}
  }})"""


def bound(values: np.ndarray, axis: object, epsilon: float) -> np.ndarray:
    """How far two sums of the same numbers can be apart: n - 1 roundings each, of at most the sum of sizes."""
    count = np.prod([values.shape[dimension] for dimension in axis])
    return 2 * count * epsilon * np.abs(values.astype(np.float64)).sum(axis)


@pytest.mark.parametrize("dimensions", [(0,), (2, 1), (0, 1, 2)])
@pytest.mark.parametrize(("name", "operation"), [("i32", "add"), ("i8", "multiply"), ("f32", "maximum"), ("i1", "or")])
def test_reduce(name: str, operation: str, dimensions: tuple[int, ...], both, xla) -> None:
    sizes = [size for axis, size in enumerate((5, 3, 7)) if axis not in dimensions]
    kind, scalar = f"tensor<5x3x7x{name}>", f"tensor<{name}>"
    result = f"tensor<{'x'.join([*map(str, sizes), name])}>"
    axes = ", ".join(map(str, dimensions))
    body = f"""  %r = "stablehlo.reduce"(%a0, %a1) <{{dimensions = array<i64: {axes}>}}> {region(operation, scalar)}
      : ({kind}, {scalar}) -> {result}"""
    values = np.random.default_rng(0).integers(-9, 9, (5, 3, 7)).astype(both.NAMES[name])
    text = both.function([kind, scalar], [result], body, ["%r"])
    (ours,), (theirs,) = both.judged(text, [values, np.array(1, values.dtype)])
    both.same(operation, ours, theirs)


@pytest.mark.parametrize(("name", "digits"), [("f32", 24), ("f64", 53), ("bf16", 8)])
def test_sums_of_floats(name: str, digits: int, both, xla) -> None:
    kind, result, scalar = f"tensor<9x100x{name}>", f"tensor<9x{name}>", f"tensor<{name}>"
    body = f"""  %r = "stablehlo.reduce"(%a0, %a1) <{{dimensions = array<i64: 1>}}> {region("add", scalar)}
      : ({kind}, {scalar}) -> {result}"""
    values = np.random.default_rng(0).normal(size=(9, 100)).astype(both.NAMES[name])
    text = both.function([kind, scalar], [result], body, ["%r"])
    (ours,), (theirs,) = both.judged(text, [values, np.zeros((), values.dtype)])
    assert (np.abs(ours.astype(np.float64) - theirs.astype(np.float64)) <= bound(values, (1,), 2.0**-digits)).all()
    exact = values.astype(np.float64).sum(1)
    assert (np.abs(ours.astype(np.float64) - exact) <= bound(values, (1,), 2.0**-digits) / 2).all()


def test_each_step_is_rounded_and_the_order_is_stated(both) -> None:
    """Neighbours first, the initial value last and on the left."""
    kind, scalar = "tensor<5xbf16>", "tensor<bf16>"
    body = f"""  %r = "stablehlo.reduce"(%a0, %a1) <{{dimensions = array<i64: 0>}}> {region("add", scalar)}
      : ({kind}, {scalar}) -> {scalar}
  %s = "stablehlo.reduce"(%a0, %a1) <{{dimensions = array<i64: 0>}}> {region("subtract", scalar)}
      : ({kind}, {scalar}) -> {scalar}"""
    text = both.function([kind, scalar], [scalar, scalar], body, ["%r", "%s"])
    element = both.NAMES["bf16"]
    values = np.array([256, 1, 1, 1, 3], element)
    total, difference = both.run(text, [values, np.array(1, element)])
    # 256 + 1 = 256 in bf16; (256 + (1 + 1)) + 3 = 258 + 3 = 261, which ties to 260; 1 + 260 = 261, to 260 again.
    assert float(total) == 260
    # ((256 - 1) - (1 - 1)) - 3 = 252, and 1 - 252.
    assert float(difference) == 1 - 252


def test_a_reducer_with_its_own_control_flow(both, xla) -> None:
    """Its operations are not elementwise: each element is reduced by itself."""
    body = """  %r = "stablehlo.reduce"(%a0, %a1) <{dimensions = array<i64: 1>}> ({
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %more = stablehlo.compare GT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %z = "stablehlo.if"(%more) ({
      "stablehlo.return"(%x) : (tensor<i32>) -> ()
    }, {
      "stablehlo.return"(%y) : (tensor<i32>) -> ()
    }) : (tensor<i1>) -> tensor<i32>
    stablehlo.return %z : tensor<i32>
  }) : (tensor<4x6xi32>, tensor<i32>) -> tensor<4xi32>"""
    text = both.function(["tensor<4x6xi32>", "tensor<i32>"], ["tensor<4xi32>"], body, ["%r"])
    values = np.random.default_rng(0).integers(-9, 9, (4, 6)).astype(np.int32)
    (ours,), (theirs,) = both.judged(text, [values, np.array(-3, np.int32)])
    both.same("larger", ours, theirs)
    assert ours.tolist() == np.maximum(values.max(1), -3).tolist()


def test_arg_max(both, xla) -> None:
    """Two operands, reduced together; the first of equal elements."""
    body = """  %r:2 = "stablehlo.reduce"(%a0, %a1, %a2, %a3) <{dimensions = array<i64: 1>}> ({
  ^bb0(%x: tensor<f32>, %i: tensor<i32>, %y: tensor<f32>, %j: tensor<i32>):
    %more = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %same = stablehlo.compare EQ, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %first = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %both = stablehlo.and %same, %first : tensor<i1>
    %takes = stablehlo.or %more, %both : tensor<i1>
    %z = stablehlo.select %takes, %x, %y : tensor<i1>, tensor<f32>
    %k = stablehlo.select %takes, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %z, %k : tensor<f32>, tensor<i32>
  }) : (tensor<4x7xf32>, tensor<4x7xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)"""
    kinds = ["tensor<4x7xf32>", "tensor<4x7xi32>", "tensor<f32>", "tensor<i32>"]
    text = both.function(kinds, ["tensor<4xf32>", "tensor<4xi32>"], body, ["%r#0", "%r#1"])
    values = np.random.default_rng(0).integers(0, 3, (4, 7)).astype(np.float32)
    places = np.broadcast_to(np.arange(7, dtype=np.int32), (4, 7)).copy()
    arrays = [values, places, np.array(-np.inf, np.float32), np.array(99, np.int32)]
    ours, theirs = both.judged(text, arrays)
    for one, other in zip(ours, theirs, strict=True):
        both.same("arg max", one, other)
    assert ours[1].tolist() == values.argmax(1).tolist()


def test_reductions_of_nothing(both, xla) -> None:
    kind, scalar = "tensor<0x3xi32>", "tensor<i32>"
    body = f"""  %r = "stablehlo.reduce"(%a0, %a1) <{{dimensions = array<i64: 0>}}> {region("add", scalar)}
      : ({kind}, {scalar}) -> tensor<3xi32>"""
    text = both.function([kind, scalar], ["tensor<3xi32>"], body, ["%r"])
    (ours,), (theirs,) = both.judged(text, [np.zeros((0, 3), np.int32), np.array(5, np.int32)])
    both.same("nothing", ours, theirs)
    assert ours.tolist() == [5, 5, 5]


def test_map(both, xla) -> None:
    kind, scalar = "tensor<2x3xi32>", "tensor<i32>"
    body = f"""  %r = "stablehlo.map"(%a0, %a1) <{{dimensions = array<i64: 0, 1>}}> {region("subtract", scalar)}
      : ({kind}, {kind}) -> {kind}"""
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    (ours,), (theirs,) = both.judged(both.function([kind, kind], [kind], body, ["%r"]), [values, values * 3])
    both.same("map", ours, theirs)


WINDOWS = [
    # window, strides, base dilations, window dilations, padding: pairs; sizes of the result
    ((2, 3), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (4, 4)),
    ((2, 3), (2, 1), (1, 1), (1, 2), (1, 0, 2, 1), (3, 5)),
    ((3, 1), (1, 2), (2, 1), (1, 1), (0, 1, 0, 0), (8, 3)),
    ((2, 2), (3, 2), (2, 3), (2, 1), (2, 0, -1, 1), (3, 8)),
    ((9, 1), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (0, 6)),
]


@pytest.mark.parametrize(("operation", "name", "neutral"), [("add", "i32", 0), ("maximum", "f32", -np.inf)])
@pytest.mark.parametrize(("window", "strides", "base", "dilation", "padding", "sizes"), WINDOWS)
def test_windows(operation, name, neutral, window, strides, base, dilation, padding, sizes, both, xla) -> None:
    kind, scalar, result = f"tensor<5x6x{name}>", f"tensor<{name}>", f"tensor<{sizes[0]}x{sizes[1]}x{name}>"
    lists = {
        "window_dimensions": window,
        "window_strides": strides,
        "base_dilations": base,
        "window_dilations": dilation,
    }
    given = ", ".join(f"{key} = array<i64: {entries[0]}, {entries[1]}>" for key, entries in lists.items())
    pads = f"[[{padding[0]}, {padding[1]}], [{padding[2]}, {padding[3]}]]"
    body = f"""  %r = "stablehlo.reduce_window"(%a0, %a1) <{{{given}, padding = dense<{pads}> : tensor<2x2xi64>}}>
      {region(operation, scalar)} : ({kind}, {scalar}) -> {result}"""
    values = np.random.default_rng(0).integers(-50, 50, (5, 6)).astype(both.NAMES[name])
    arrays = [values, np.array(neutral, values.dtype)]
    (ours,), (theirs,) = both.judged(both.function([kind, scalar], [result], body, ["%r"]), arrays)
    both.same("windows", ours, theirs)


@pytest.mark.parametrize(("padding", "sizes"), [((0, 0, 0, 0), (2, 3)), ((1, 1, 0, 1), (3, 3))])
def test_select_and_scatter(padding, sizes, both, xla) -> None:
    source, scalar = f"tensor<{sizes[0]}x{sizes[1]}xi32>", "tensor<i32>"
    pads = f"[[{padding[0]}, {padding[1]}], [{padding[2]}, {padding[3]}]]"
    body = f"""  %r = "stablehlo.select_and_scatter"(%a0, %a1, %a2) <{{window_dimensions = array<i64: 3, 2>,
      window_strides = array<i64: 2, 2>, padding = dense<{pads}> : tensor<2x2xi64>}}> ({{
  ^bb0(%x: {scalar}, %y: {scalar}):
    %z = stablehlo.compare GE, %x, %y : ({scalar}, {scalar}) -> tensor<i1>
    stablehlo.return %z : tensor<i1>
  }}, {{
  ^bb0(%x: {scalar}, %y: {scalar}):
    %z = stablehlo.add %x, %y : {scalar}
    stablehlo.return %z : {scalar}
  }}) : (tensor<5x6xi32>, {source}, {scalar}) -> tensor<5x6xi32>"""
    values = np.random.default_rng(0).integers(-9, 0, (5, 6)).astype(np.int32)
    arrays = [values, np.arange(1, sizes[0] * sizes[1] + 1, dtype=np.int32).reshape(sizes), np.array(100, np.int32)]
    text = both.function(["tensor<5x6xi32>", source, scalar], ["tensor<5x6xi32>"], body, ["%r"])
    (ours,), (theirs,) = both.judged(text, arrays)
    both.same("select and scatter", ours, theirs)


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize(
    ("dimension", "shape"), [(0, (9, 4)), (-1, (3, 2, 10)), (1, (2, 1, 3)), (0, (0, 2)), (0, (5,))]
)
def test_sort(direction: str, dimension: int, shape: tuple[int, ...], both, xla) -> None:
    """Two operands at once, ordered by the first, with NaN and zeros of both signs in total order; equals stay."""
    sizes = "x".join(map(str, shape))
    keys, others = f"tensor<{sizes}xf32>", f"tensor<{sizes}xi32>"
    body = f"""  %r:2 = "stablehlo.sort"(%a0, %a1) <{{dimension = {dimension} : i64, is_stable = true}}> ({{
  ^bb0(%x: tensor<f32>, %y: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>):
    %z = stablehlo.compare {direction}, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %z : tensor<i1>
  }}) : ({keys}, {others}) -> ({keys}, {others})"""
    generator = np.random.default_rng(0)
    values = generator.choice(np.array([0.0, -0.0, 1, 2, -5, np.nan, np.inf], np.float32), shape)
    places = np.arange(values.size, dtype=np.int32).reshape(shape)
    ours, theirs = both.judged(both.function([keys, others], [keys, others], body, ["%r#0", "%r#1"]), [values, places])
    for one, other in zip(ours, theirs, strict=True):
        both.same("sort", one, other)


def test_a_comparator_that_never_agrees_ends(both) -> None:
    kind = "tensor<6xi32>"
    body = f"""  %r = "stablehlo.sort"(%a0) ({{
  ^bb0(%x: tensor<i32>, %y: tensor<i32>):
    %z = stablehlo.constant dense<true> : tensor<i1>
    stablehlo.return %z : tensor<i1>
  }}) : ({kind}) -> {kind}"""
    (result,) = both.run(both.function([kind], [kind], body, ["%r"]), [np.arange(6, dtype=np.int32)])
    assert sorted(result.tolist()) == list(range(6))
