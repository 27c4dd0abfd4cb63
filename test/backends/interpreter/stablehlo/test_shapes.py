"""Operations that move elements, against XLA: all are exact. Names of dimensions tell all sizes apart."""

import numpy as np
import pytest

X = "tensor<2x3x4xi32>"
CASES = {
    "transpose": (f"stablehlo.transpose %a0, dims = [2, 0, 1] : ({X}) -> tensor<4x2x3xi32>", "4x2x3xi32"),
    "reshape": (f"stablehlo.reshape %a0 : ({X}) -> tensor<6x1x4xi32>", "6x1x4xi32"),
    "to nothing": ("stablehlo.reshape %a1 : (tensor<3x0xi32>) -> tensor<0x7xi32>", "0x7xi32"),
    "reverse": (f'"stablehlo.reverse"(%a0) <{{dimensions = array<i64: 0, 2>}}> : ({X}) -> {X}', "2x3x4xi32"),
    "slice": (f"stablehlo.slice %a0 [0:2, 1:3, 0:4:3] : ({X}) -> tensor<2x2x2xi32>", "2x2x2xi32"),
    "empty slice": (f"stablehlo.slice %a0 [1:1, 1:3, 1:2:3] : ({X}) -> tensor<0x2x1xi32>", "0x2x1xi32"),
    "broadcast": (
        "stablehlo.broadcast_in_dim %a2, dims = [1, 2] : (tensor<3x1xi32>) -> tensor<2x3x4xi32>",
        "2x3x4xi32",
    ),
    "turned broadcast": (
        "stablehlo.broadcast_in_dim %a3, dims = [2, 0] : (tensor<3x2xi32>) -> tensor<2x4x3xi32>",
        "2x4x3xi32",
    ),
    "scalar broadcast": ("stablehlo.broadcast_in_dim %a4, dims = [] : (tensor<i32>) -> tensor<2x3xi32>", "2x3xi32"),
    "iota": ("stablehlo.iota dim = 1 : tensor<2x5xbf16>", "2x5xbf16"),
    "complex iota": ("stablehlo.iota dim = 0 : tensor<3x2xcomplex<f32>>", "3x2xcomplex<f32>"),
    "concatenate": (
        f"stablehlo.concatenate %a0, %a0, %a5, dim = 1 : ({X}, {X}, tensor<2x1x4xi32>) -> tensor<2x7x4xi32>",
        "2x7x4xi32",
    ),
    "constant": ("stablehlo.constant dense<[[1.5, 0x7F80], [-0.0, 0x7FC0]]> : tensor<2x2xbf16>", "2x2xbf16"),
    "booleans": ("stablehlo.constant dense<[true, false]> : tensor<2xi1>", "2xi1"),
    "repeated constant": ("stablehlo.constant dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>", "2xcomplex<f32>"),
    "barrier": ("stablehlo.optimization_barrier %a0 : tensor<2x3x4xi32>", "2x3x4xi32"),
}
ARGUMENTS = [X, "tensor<3x0xi32>", "tensor<3x1xi32>", "tensor<3x2xi32>", "tensor<i32>", "tensor<2x1x4xi32>"]


def numbered(kind: str) -> np.ndarray:
    sizes = [int(size) for size in kind.removeprefix("tensor<").split("x")[:-1]]
    return np.arange(np.prod(sizes, dtype=int), dtype=np.int32).reshape(sizes)


def test_moves(both, xla) -> None:
    lines = {name: (text, f"tensor<{kind}>") for name, (text, kind) in CASES.items()}
    ours, theirs = both.judged(both.all_of(lines, ARGUMENTS), [numbered(kind) for kind in ARGUMENTS])
    for name, one, other in zip(lines, ours, theirs, strict=True):
        both.same(name, one, other)


@pytest.mark.parametrize(
    ("low", "high", "interior"),
    [
        ([1, 0], [0, 2], [0, 0]),
        ([0, 0], [0, 0], [2, 1]),
        ([-1, 1], [-1, -2], [0, 0]),
        ([-2, -3], [1, 0], [1, 2]),
        ([2, 2], [-4, -4], [1, 0]),
        ([-3, 0], [0, 0], [0, 0]),
    ],
)
def test_padding(low: list[int], high: list[int], interior: list[int], both, xla) -> None:
    shape = (3, 4)
    sizes = [b + size + (size - 1) * i + a for size, b, a, i in zip(shape, low, high, interior, strict=True)]
    result = f"tensor<{'x'.join(map(str, sizes))}xf32>"
    edges = ", ".join(
        f"{name} = array<i64: {', '.join(map(str, entries))}>"
        for name, entries in (("edge_padding_low", low), ("edge_padding_high", high), ("interior_padding", interior))
    )
    line = f'"stablehlo.pad"(%a0, %a1) <{{{edges}}}> : (tensor<3x4xf32>, tensor<f32>) -> {result}'
    values = [np.arange(12, dtype=np.float32).reshape(shape), np.array(-1, np.float32)]
    text = both.all_of({"": (line, result)}, ["tensor<3x4xf32>", "tensor<f32>"])
    (ours,), (theirs,) = both.judged(text, values)
    both.same("pad", ours, theirs)


def test_nothing_is_written(both) -> None:
    """Neither arguments nor what other results are windows onto."""
    kind = "tensor<4xi32>"
    text = both.function(
        [kind, "tensor<1xi32>", "tensor<i32>"],
        [kind, kind, kind],
        f"""  %0 = stablehlo.reshape %a0 : ({kind}) -> {kind}
        %1 = "stablehlo.dynamic_update_slice"(%0, %a1, %a2) : ({kind}, tensor<1xi32>, tensor<i32>) -> {kind}""",
        ["%a0", "%0", "%1"],
    )
    values = np.arange(4, dtype=np.int32)
    same, window, new = both.run(text, [values, np.array([9], np.int32), np.array(2, np.int32)])
    assert (values.tolist(), same.tolist(), window.tolist(), new.tolist()) == (
        *([0, 1, 2, 3],) * 3,
        [0, 1, 9, 3],
    )
    same[0] = 7
    assert values[0] == 0
