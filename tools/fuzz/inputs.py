"""What programs are called with: windows of every layout onto storages that they may share, and what changes between
calls: data, sizes, and who overlaps whom.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_ir.tools.fuzz.program import Call, Memory, Window, dtype_named

MAIN_DTYPES = (
    "float32",
    "float32",
    "float32",
    "int64",
    "float64",
    "bfloat16",
    "float16",
    "int32",
    "complex64",
    "uint8",
)
OTHER_DTYPES = ("float32", "int64", "bool", "float64", "int32", "bfloat16", "float16", "int16", "uint8")
_SAME_SIZE = {"float32": ("int32",), "int32": ("float32",), "int64": ("float64",), "float64": ("int64",)}


SYMBOL = -1


@dataclass(frozen=True)
class _Recipe:
    """A window whose sizes may be symbols: `SYMBOL` stands for the size that changes between calls."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """Dimensions from the largest stride to the smallest."""
    step: int
    """Elements from one of the innermost dimension to the next."""
    padding: int
    """Elements between rows."""
    offset: int
    expanded: int | None = None
    """A dimension of stride 0."""
    same_as: int | None = None

    def window(self, size: int) -> Window:
        """The window, where the changing size is `size`."""
        shape = tuple(size if extent == SYMBOL else extent for extent in self.shape)
        strides = [0] * len(shape)
        step = self.step
        for position, dim in enumerate(reversed(self.order)):
            if dim == self.expanded:
                continue
            strides[dim] = step
            step *= max(shape[dim], 1)
            if position == 0:
                step += self.padding
        return Window(self.storage, self.dtype, shape, tuple(strides), self.offset, self.same_as)


@dataclass(frozen=True)
class Inputs:
    """The calls of a program."""

    calls: tuple[Call, ...]
    dynamic: bool


def draw_inputs(rng: random.Random, count: int, *, dynamic: bool) -> Inputs:
    """Draw the inputs of a program with `count` windows."""
    dims = rng.sample((2, 3, 4, 5, 6), 2)
    main = rng.choice(MAIN_DTYPES)
    recipes: list[_Recipe] = []
    for _ in range(count):
        if recipes and rng.random() < 0.4:
            recipes.append(_related(rng, recipes, dims))
        else:
            dtype = main if rng.random() < 0.75 else rng.choice(OTHER_DTYPES)
            storage = 1 + max((recipe.storage for recipe in recipes), default=-1)
            recipes.append(_plain(rng, storage, dtype, dims, dynamic=dynamic))
    tail = rng.choice((0, 0, 1, 5))
    sizes: list[int] = rng.sample((2, 3, 4, 5, 7), 3) if dynamic else [1, 1]
    if dynamic and rng.random() < 0.3:
        sizes[-1] = 1
    calls = [_call(recipes, size, seed, tail) for seed, size in enumerate(sizes)]
    if rng.random() < 0.2:
        moved = _moved(rng, recipes)
        calls.append(_call(moved, sizes[0], len(calls), tail))
        if rng.random() < 0.5:
            calls.append(_call(recipes, sizes[0], len(calls), tail))
    return Inputs(tuple(calls), dynamic)


def _plain(rng: random.Random, storage: int, dtype: str, dims: Sequence[int], *, dynamic: bool) -> _Recipe:
    """A window onto a storage of its own."""
    rank = rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 4))
    shape = [rng.choice(dims) for _ in range(rank)]
    if rank == 4:
        shape = [min(size, 3) for size in shape]
    if shape and rng.random() < 0.12:
        shape[rng.randrange(rank)] = 1
    if shape and not dynamic and rng.random() < 0.04:
        shape[rng.randrange(rank)] = 0
    if shape and dynamic and rng.random() < 0.8:
        shape[rng.randrange(rank) if rng.random() < 0.3 else 0] = SYMBOL
    if dtype == "complex64" and shape and rng.random() < 0.3:
        shape[-1] = 2
    order = list(range(rank))
    if rng.random() < 0.3:
        rng.shuffle(order)
    step = 2 if rng.random() < 0.12 else 1
    padding = rng.choice((1, 2, 3)) if rng.random() < 0.15 else 0
    offset = rng.choice((1, 2, 4)) if rng.random() < 0.2 else 0
    expanded = rng.randrange(rank) if rank and rng.random() < 0.03 else None
    return _Recipe(storage, dtype, tuple(shape), tuple(order), step, padding, offset, expanded)


def _related(rng: random.Random, recipes: Sequence[_Recipe], dims: Sequence[int]) -> _Recipe:
    """A window onto the storage of one that there is."""
    position = rng.randrange(len(recipes))
    base = recipes[position]
    base_position = position
    while recipes[base_position].same_as is not None:
        base_position = recipes[base_position].same_as or 0
    kind = rng.choice(("same", "same window", "shifted", "shifted", "disjoint", "interleaved", "other", "dtype"))
    if kind == "same":
        return replace(base, same_as=base_position)
    base = replace(base, same_as=None)
    if kind == "shifted":
        return replace(base, offset=base.offset + rng.choice((1, 2, 3, dims[0])))
    if kind == "disjoint":
        extent = math.prod(7 if size == SYMBOL else max(size, 1) for size in base.shape) * base.step + base.padding * 8
        return replace(base, offset=base.offset + extent)
    if kind == "interleaved" and base.step == 2:
        return replace(base, offset=base.offset + 1)
    if kind == "other":
        return replace(_plain(rng, base.storage, base.dtype, dims, dynamic=SYMBOL in base.shape), expanded=None)
    if kind == "dtype" and base.dtype in _SAME_SIZE:
        return replace(base, dtype=rng.choice(_SAME_SIZE[base.dtype]))
    if len(base.shape) > 1:
        return replace(base, order=tuple(reversed(base.order)))
    return base


def _moved(rng: random.Random, recipes: Sequence[_Recipe]) -> list[_Recipe]:
    """The same windows, of which one lies in other memory or elsewhere in its own."""
    result = list(recipes)
    position = rng.randrange(len(result))
    chosen = replace(result[position], same_as=None)
    others = [recipe for i, recipe in enumerate(result) if i != position and recipe.dtype == chosen.dtype]
    kind = rng.choice(("own", "other", "shifted"))
    if kind == "own" or (kind == "other" and not others):
        chosen = replace(chosen, storage=1 + max(recipe.storage for recipe in result))
    elif kind == "other":
        other = rng.choice(others)
        chosen = replace(chosen, storage=other.storage, offset=other.offset + rng.choice((0, 0, 1, 2)))
    else:
        chosen = replace(chosen, offset=chosen.offset + rng.choice((1, 2, 6)))
    result[position] = chosen
    # What was the same tensor as the one that moved stays where it is.
    for i, recipe in enumerate(result):
        if recipe.same_as == position or (recipe.same_as is not None and recipe.same_as >= i):
            result[i] = replace(recipe, same_as=None)
    return result


def _call(recipes: Sequence[_Recipe], size: int, seed: int, tail: int) -> Call:
    windows = tuple(recipe.window(size) for recipe in recipes)
    storages: list[Memory] = []
    for index in range(1 + max(window.storage for window in windows)):
        mine = [window for window in windows if window.storage == index]
        if not mine:
            storages.append(Memory("uint8", 0, 0))
            continue
        dtypes = {window.dtype for window in mine}
        width = dtype_named(mine[0].dtype).itemsize
        need = max(map(_end, mine)) + tail * width
        if len(dtypes) > 1:
            need = -(-need // 16) * 16
        storages.append(Memory(mine[0].dtype, -(-need // width), seed * 3 + index))
    return Call(tuple(storages), windows)


def _end(window: Window) -> int:
    """Bytes up to the end of a window."""
    width = dtype_named(window.dtype).itemsize
    if 0 in window.shape:
        return window.offset * width
    last = window.offset + sum((s - 1) * t for s, t in zip(window.shape, window.strides, strict=True))
    return (last + 1) * width
