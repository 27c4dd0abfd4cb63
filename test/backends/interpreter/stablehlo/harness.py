"""Runs StableHLO text by the evaluator and by XLA, and compares."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from vllm_ir.backends.interpreter.stablehlo.evaluate import evaluate
from vllm_ir.backends.interpreter.stablehlo.values import ELEMENTS, is_complex, is_float
from vllm_ir.tools.text import parse

NAMES = {str(kind): element for kind, element in ELEMENTS.items()}
"""Numpy types by the name that an element type has in text."""
FLOATS = ["f64", "f32", "bf16", "f16"]
EIGHT_BITS = ["f8E4M3FN", "f8E5M2"]
INTEGERS = ["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"]
RELATIVE = {"f64": 4e-14, "f32": 4e-6, "bf16": 2.0**-8, "f16": 2.0**-10, "complex<f32>": 2e-5, "complex<f64>": 1e-13}
"""What XLA's approximations of functions are allowed; for narrow types a unit of the last place, since both round what
is computed more exactly."""


def function(arguments: Sequence[str], results: Sequence[str], body: str, returned: Sequence[str]) -> str:
    """The text of a function `@main(%a0, %a1, ..)`."""
    parameters = ", ".join(f"%a{index}: {kind}" for index, kind in enumerate(arguments))
    return (
        f"func.func public @main({parameters}) -> ({', '.join(results)}) {{\n{body}\n"
        f"  func.return {', '.join(returned)} : {', '.join(results)}\n}}\n"
    )


def all_of(lines: Mapping[str, tuple[str, str]], arguments: Sequence[str]) -> str:
    """A function of several operations on the arguments: `{name: (operation, type of its result)}`."""
    body = "\n".join(f"  %r{index} = {text}" for index, (text, _) in enumerate(lines.values()))
    kinds = [kind for _, kind in lines.values()]
    return function(arguments, kinds, body, [f"%r{index}" for index in range(len(lines))])


def run(text: str, arrays: Sequence[np.ndarray], **options: bool) -> list[np.ndarray]:
    """What the evaluator gives."""
    return evaluate(parse(text), arrays, **options)


def judged(text: str, arrays: Sequence[np.ndarray], **options: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the evaluator gives, and what XLA gives."""
    return run(text, arrays, **options), sys.modules["stablehlo_harness"].execute(text, arrays)


def flushed(array: np.ndarray) -> np.ndarray:
    """With zeros for subnormal numbers, as XLA's CPU client has them."""
    if not is_float(array.dtype) or array.dtype.itemsize == 1:
        return array
    tiny = np.abs(array.astype(np.float64)) < float(ml_dtypes.finfo(array.dtype).smallest_normal)
    return np.where(tiny, np.copysign(np.zeros_like(array), array), array)


def same(name: str, ours: np.ndarray, theirs: np.ndarray, relative: float = 0.0, absolute: float = 0.0) -> None:
    """Equal elements, zeros with their signs and all NaN alike; or as near as the bounds say."""
    assert ours.dtype == theirs.dtype, name
    assert ours.shape == theirs.shape, name
    ours, theirs = flushed(ours), flushed(theirs)
    if not is_float(ours.dtype) and not is_complex(ours.dtype):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        return
    wide = np.complex128 if is_complex(ours.dtype) else np.float64
    ours, theirs = ours.astype(wide), theirs.astype(wide)
    np.testing.assert_allclose(ours, theirs, rtol=relative, atol=absolute, equal_nan=True, err_msg=name)
    if relative == 0 and wide is np.float64:
        numbers = ~np.isnan(ours)
        np.testing.assert_array_equal(np.signbit(ours[numbers]), np.signbit(theirs[numbers]), err_msg=name)


def edges(name: str, seed: int = 0) -> np.ndarray:
    """Numbers of a type that are at an edge of something, and some random ones."""
    element, generator = NAMES[name], np.random.default_rng(seed)
    if element == np.bool_:
        return np.array([False, True])
    if is_complex(element):
        parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, *generator.normal(size=6)]
        return np.array([complex(a, b) for a in parts for b in parts[:5]], element)
    if is_float(element):
        limits = ml_dtypes.finfo(element)
        largest, normal = float(limits.max), float(limits.smallest_normal)
        special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.75, 7.0, np.inf, -np.inf, np.nan, 100.0]
        wide = [largest, -largest, normal, -normal, largest / 2, float(limits.eps), 1 + float(limits.eps)]
        with np.errstate(over="ignore"):
            return np.array([*special, *wide, *generator.normal(scale=3, size=12)]).astype(element)
    limits = np.iinfo(element)
    numbers = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 7, 8, 13, limits.bits]
    numbers += [-1, -2, -3, -7, -8] if limits.min else [limits.max // 2]
    return np.array([*numbers, *generator.integers(limits.min, limits.max, 8, element)], element)


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Each of the edges with each."""
    left, right = np.meshgrid(edges(name), edges(name, 1))
    return left.reshape(-1), right.reshape(-1)
