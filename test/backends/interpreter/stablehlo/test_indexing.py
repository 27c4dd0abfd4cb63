"""Slices at run-time places, gathers and scatters, against XLA.

XLA leaves out a window of `scatter` that does not fit as a whole, where the specification leaves out the elements that
are outside. The evaluator does either.
"""

import numpy as np
import pytest


def test_random_modules(both, xla, modules) -> None:
    """Nested slices, updates, gathers and scatters, with places that are in range and others."""
    for seed in (300, 301):
        module, owners = modules.random_module(seed, 25)
        text, arrays = str(module), modules.arguments(module, seed)
        ours, theirs = both.judged(text, arrays, whole_windows=True)
        for owner, one, other in zip(owners, ours, theirs, strict=True):
            both.same(f"module {seed}, program {owner}", one, other)


@pytest.mark.parametrize("index", ["i8", "i64", "ui8", "ui64"])
def test_starts_are_moved_into_the_operand(index: str, both, xla) -> None:
    kind, part, scalar = "tensor<5x4xi32>", "tensor<2x3xi32>", f"tensor<{index}>"
    lines = {
        "slice": (
            f"stablehlo.dynamic_slice %a0, %a2, %a3, sizes = [2, 3] : ({kind}, {scalar}, {scalar}) -> {part}",
            part,
        ),
        "update": (
            f'"stablehlo.dynamic_update_slice"(%a0, %a1, %a2, %a3) : ({kind}, {part}, {scalar}, {scalar}) -> {kind}',
            kind,
        ),
    }
    text = both.all_of(lines, [kind, part, scalar, scalar])
    element = both.NAMES[index]
    limits = np.iinfo(element)
    values = np.arange(20, dtype=np.int32).reshape(5, 4), np.arange(100, 106, dtype=np.int32).reshape(2, 3)
    for starts in ((0, 1), (3, 0), (4, 3), (limits.min, 1), (limits.max, limits.max)):
        ours, theirs = both.judged(text, [*values, *(np.array(start, element) for start in starts)])
        for name, one, other in zip(lines, ours, theirs, strict=True):
            both.same(f"{name} at {starts}", one, other)


GATHER = """  %r = "stablehlo.gather"(%a0, %a1) <{{dimension_numbers = #stablehlo.gather<{numbers}>,
      slice_sizes = array<i64: {sizes}>, indices_are_sorted = false}}> : ({operand}, {indices}) -> {result}"""
GATHERS = [
    # windows between the dimensions that count them, vectors along the first dimension, collapsed and kept dimensions
    (
        "offset_dims = [1, 2], collapsed_slice_dims = [1], start_index_map = [1, 0], index_vector_dim = 0",
        *("2, 1, 3", "4x3x5xf32", "2x6xi32", "6x2x3xf32"),
    ),
    (
        "offset_dims = [0, 3], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2",
        *("1, 2, 5", "4x3x5xf32", "2x6xi64", "2x2x6x5xf32"),
    ),
    # batching
    (
        "offset_dims = [2], operand_batching_dims = [0], start_indices_batching_dims = [1], start_index_map = [2, 1], "
        "collapsed_slice_dims = [1], index_vector_dim = 2",
        *("1, 1, 2", "4x3x5xf32", "6x4x2xi32", "6x4x2xf32"),
    ),
    (
        "offset_dims = [0], operand_batching_dims = [2], start_indices_batching_dims = [2], start_index_map = [0], "
        "collapsed_slice_dims = [0], index_vector_dim = 1",
        *("1, 3, 1", "4x3x5xf32", "2x1x5xi32", "3x2x5xf32"),
    ),
    ("start_index_map = [0], collapsed_slice_dims = [0], index_vector_dim = 1", "1", "4xf32", "0xi32", "0xf32"),
    ("offset_dims = [1], start_index_map = [0], index_vector_dim = 1", "2", "4xf32", "3x1xui8", "3x2xf32"),
]


def typed(kind: str) -> str:
    return f"tensor<{kind}>"


def indices(kind: str, both, seed: int = 0) -> np.ndarray:
    *sizes, name = kind.split("x")
    low = 0 if name.startswith("u") else -3
    return np.random.default_rng(seed).integers(low, 7, [int(size) for size in sizes]).astype(both.NAMES[name])


def floats(kind: str) -> np.ndarray:
    sizes = [int(size) for size in kind.split("x")[:-1]]
    return np.random.default_rng(1).normal(size=sizes).astype(np.float32)


def integers(kind: str) -> np.ndarray:
    return (100 * floats(kind)).astype(np.int32)


@pytest.mark.parametrize(("numbers", "sizes", "operand", "at", "result"), GATHERS)
def test_gathers(numbers: str, sizes: str, operand: str, at: str, result: str, both, xla) -> None:
    body = GATHER.format(numbers=numbers, sizes=sizes, operand=typed(operand), indices=typed(at), result=typed(result))
    text = both.function([typed(operand), typed(at)], [typed(result)], body, ["%r"])
    (ours,), (theirs,) = both.judged(text, [floats(operand), indices(at, both)])
    both.same("gather", ours, theirs)


SCATTER = """  %r = "stablehlo.scatter"(%a0, %a1, %a2) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>,
      indices_are_sorted = false, unique_indices = false}}> ({{
  ^bb0(%old: tensor<i32>, %new: tensor<i32>):
    {combine}
    stablehlo.return %c : tensor<i32>
  }}) : ({operand}, {indices}, {updates}) -> {operand}"""
SCATTERS = [
    (
        "update_window_dims = [1, 2], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1, 0], "
        "index_vector_dim = 0",
        *("4x3x5xi32", "2x6xi32", "6x2x3xi32"),
    ),
    (
        "update_window_dims = [2], input_batching_dims = [0], scatter_indices_batching_dims = [1], "
        "inserted_window_dims = [1], scatter_dims_to_operand_dims = [2, 1], index_vector_dim = 2",
        *("4x3x5xi32", "6x4x2xi32", "6x4x2xi32"),
    ),
    (
        "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
        "4xi32",
        "30xi64",
        "30xi32",
    ),
    ("inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1", "4xi32", "0xi32", "0xi32"),
]
COMBINE = {
    "sum": "%c = stablehlo.add %old, %new : tensor<i32>",
    "last": "%c = stablehlo.add %new, %new : tensor<i32>",
    "both": "%d = stablehlo.multiply %old, %new : tensor<i32>\n    %c = stablehlo.subtract %d, %new : tensor<i32>",
}


def scatter(both, numbers: str, operand: str, at: str, updates: str, how: str) -> str:
    kinds = [typed(kind) for kind in (operand, at, updates)]
    names = dict(zip(("operand", "indices", "updates"), kinds, strict=True))
    return both.function(kinds, kinds[:1], SCATTER.format(numbers=numbers, combine=COMBINE[how], **names), ["%r"])


@pytest.mark.parametrize("how", COMBINE)
@pytest.mark.parametrize(("numbers", "operand", "at", "updates"), SCATTERS)
def test_scatters(numbers: str, operand: str, at: str, updates: str, how: str, both, xla) -> None:
    """Updates of one place are applied in their order, each to what the one before it gave."""
    text = scatter(both, numbers, operand, at, updates, how)
    arrays = [integers(operand), indices(at, both, 2), integers(updates)]
    (ours,), (theirs,) = both.judged(text, arrays, whole_windows=True)
    both.same(how, ours, theirs)


def test_windows_that_do_not_fit(both) -> None:
    """By the specification, each element is left out that is outside; as XLA does it, the whole window is."""
    numbers = "update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
    text = scatter(both, numbers, "4xi32", "3x1xi32", "3x2xi32", "sum")
    arrays = [np.zeros(4, np.int32), np.array([[-1], [3], [1]], np.int32), np.array([[1, 2], [3, 4], [5, 6]], np.int32)]
    assert both.run(text, arrays)[0].tolist() == [2, 5, 6, 3]
    assert both.run(text, arrays, whole_windows=True)[0].tolist() == [0, 5, 6, 0]


def test_several_operands_at_once(both, xla) -> None:
    """The larger value with its place; at equal values the older one stays."""
    body = """  %r:2 = "stablehlo.scatter"(%a0, %a1, %a2, %a3, %a4) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
      indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%old: tensor<i32>, %place: tensor<i32>, %new: tensor<i32>, %here: tensor<i32>):
    %more = stablehlo.compare GT, %new, %old : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c = stablehlo.select %more, %new, %old : tensor<i1>, tensor<i32>
    %d = stablehlo.select %more, %here, %place : tensor<i1>, tensor<i32>
    stablehlo.return %c, %d : tensor<i32>, tensor<i32>
  }) : (tensor<3xi32>, tensor<3xi32>, tensor<9xi32>, tensor<9xi32>, tensor<9xi32>) -> (tensor<3xi32>, tensor<3xi32>)"""
    kinds = ["tensor<3xi32>"] * 2 + ["tensor<9xi32>"] * 3
    text = both.function(kinds, kinds[:2], body, ["%r#0", "%r#1"])
    at, new = np.array([0, 1, 2] * 3), np.array([5, 2, 1, 5, 3, 0, 4, 3, 9])
    arrays = [np.zeros(3), np.full(3, -1), at, new, np.arange(9)]
    ours, theirs = both.judged(text, [array.astype(np.int32) for array in arrays])
    for one, other in zip(ours, theirs, strict=True):
        both.same("scatter", one, other)
    assert (ours[0].tolist(), ours[1].tolist()) == ([5, 3, 9], [0, 4, 8])
