"""Inputs for a module, made from its signature alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, f64, i1
from xdsl.ir import Attribute

from vllm_ir.backends.fx.export import main_function
from vllm_ir.backends.interpreter.interpret import is_stablehlo
from vllm_ir.backends.interpreter.sizes import Sizes
from vllm_ir.dialects.vllm_ir.expressions import UNKNOWN
from vllm_ir.dialects.vllm_ir.function import DONATED, MUTATED, STORAGE, SYMBOL
from vllm_ir.dialects.vllm_ir.types import BufferType, contiguous_strides, offset_of, sizes_of, strides_of
from vllm_ir.frontends.fx.symbols import names_in
from vllm_ir.frontends.fx.types import is_shaped, known_dtype

_BINDINGS = ((7, 3, 5, 2), (4, 4, 4, 4), (2, 5, 3, 13))
"""Sizes for the symbols of a signature, in order of appearance: distinct, equal, distinct and odd."""
_EDGES = (math.inf, -math.inf, math.nan, 0.0, -0.0)
_GUARD = 3
"""Elements behind the last one of a window, which nothing may touch."""
_LIMIT = 2 << 30
"""Bytes that inputs may have."""


@dataclass(frozen=True)
class Recipe:
    """How inputs are made; the same recipe gives the same inputs each time."""

    name: str
    sizes: tuple[int, ...] = _BINDINGS[0]
    """Numbers for symbols, used in turn."""
    seed: int = 0
    """Added to the seed of the whole validation."""
    edges: bool = False
    """Whether floating-point elements are also infinities, NaN and zeros of both signs."""
    sharing: bool = False
    """Whether tensors that the program only reads are the same tensor, where types allow it."""
    indices: int = 2
    """Integers are below this."""


@dataclass(frozen=True)
class Parameter:
    """One argument of a function: what it takes, and what the signature says of its memory."""

    kind: Attribute
    attributes: Mapping[str, Attribute]

    @property
    def symbol(self) -> str | None:
        """The symbol whose value the argument is."""
        name = self.attributes.get(SYMBOL)
        return name.data if isinstance(name, StringAttr) else None

    @property
    def storage(self) -> int | None:
        """The number of the storage that the argument shares with others."""
        number = self.attributes.get(STORAGE)
        return number.value.data if isinstance(number, IntegerAttr) else None

    @property
    def is_read_only(self) -> bool:
        """Whether nothing depends on the tensor being in memory of its own."""
        return is_shaped(self.kind) and not {MUTATED, DONATED, STORAGE} & self.attributes.keys()


def parameters(module: ModuleOp) -> list[Parameter]:
    """The parameters of the main function of a module, also of one of StableHLO."""
    if is_stablehlo(module):
        from vllm_ir.backends.stablehlo.aliases import entry_function  # needs what not everyone has installed

        entry = entry_function(module)
        given = entry.arg_attrs.data if entry.arg_attrs is not None else [DictionaryAttr({})] * len(entry.args)
        return [Parameter(argument.type, entry.data) for argument, entry in zip(entry.args, given, strict=True)]
    main = main_function(module)
    return [Parameter(argument.type, main.argument_attributes(argument.index)) for argument in main.block.args]


def recipes(function: Sequence[Parameter]) -> Iterator[Recipe]:
    """Kinds of inputs that a signature allows."""
    dynamic = len(symbols(function))
    yield Recipe("plain")
    yield Recipe("other numbers", seed=1)
    yield Recipe("edge values", edges=True)
    if _shareable(function):
        yield Recipe("shared inputs", sharing=True)
    for sizes in _BINDINGS[1:] if dynamic else ():
        yield Recipe(f"sizes {' '.join(map(str, sizes[:dynamic]))}", sizes=sizes)


def generate(function: Sequence[Parameter], recipe: Recipe, seed: int) -> list[object]:
    """Inputs for the arguments of a function, in order; buffers lie in memory of their own with gaps around them."""
    return _Generator(function, recipe, seed).inputs()


class _Generator:
    def __init__(self, function: Sequence[Parameter], recipe: Recipe, seed: int) -> None:
        self.function = function
        self.recipe = recipe
        self.random = torch.Generator().manual_seed(seed + recipe.seed)
        names = symbols(function)
        self.sizes = Sizes()
        self.sizes.known.update({name: recipe.sizes[i % len(recipe.sizes)] for i, name in enumerate(names)})
        self.bytes = 0
        self.limit = recipe.indices

    def inputs(self) -> list[object]:
        shared: dict[int, Tensor] = {}
        given: dict[Attribute, object] = {}
        found: list[object] = []
        for parameter in self.function:
            if parameter.storage is not None:
                found.append(self._window_onto(parameter.kind, parameter.storage, shared))
            elif self.recipe.sharing and parameter.is_read_only:
                if parameter.kind not in given:
                    given[parameter.kind] = self._value(parameter)
                found.append(given[parameter.kind])
            else:
                found.append(self._value(parameter))
        return found

    def _number(self, size: int | str) -> int:
        if (known := self.sizes.value(size)) is None:
            raise ValueError(f"size {size} of the signature is not known")
        return known

    def _value(self, parameter: Parameter) -> object:
        kind = parameter.kind
        if is_shaped(kind):
            sizes, strides, offset = self._window(kind)
            memory = self._elements(known_dtype(kind.element_type), offset + _span(sizes, strides) + _GUARD)
            return memory.as_strided(sizes, strides, offset)
        if parameter.symbol is not None:
            return self._number(parameter.symbol)
        if kind == f64:
            return 0.5
        return True if kind == i1 else 1 % self.limit

    def _window(self, kind: Attribute) -> tuple[list[int], tuple[int, ...], int]:
        sizes = [self._number(size) for size in sizes_of(kind)]
        stated = strides_of(kind)
        strides = contiguous_strides(sizes) if stated is None else tuple(self._number(step) for step in stated)
        return sizes, strides, self._number(offset_of(kind)) if isinstance(kind, BufferType) else 0

    def _window_onto(self, kind: Attribute, number: int, shared: dict[int, Tensor]) -> Tensor:
        """A window onto memory that several arguments are in."""
        dtype = known_dtype(kind.element_type) if is_shaped(kind) else torch.uint8
        if number not in shared:
            shared[number] = self._storage(number, dtype)
        flat = torch.empty(0, dtype=dtype).set_(shared[number].untyped_storage())
        return flat.as_strided(*self._window(kind))

    def _storage(self, number: int, dtype: torch.dtype) -> Tensor:
        length = 0
        for parameter in self.function:
            if parameter.storage == number and is_shaped(parameter.kind):
                sizes, strides, offset = self._window(parameter.kind)
                width = known_dtype(parameter.kind.element_type).itemsize
                length = max(length, (offset + _span(sizes, strides)) * width)
        whole = -(-length // 16) * 16  # a multiple of every dtype's size
        return self._elements(dtype, whole // dtype.itemsize + 16)

    def _elements(self, dtype: torch.dtype, count: int) -> Tensor:
        """A flat tensor of random elements."""
        self.bytes += count * dtype.itemsize
        if self.bytes > _LIMIT:
            raise ValueError(f"the inputs need more than {_LIMIT >> 30} GiB")
        if dtype == torch.bool:
            return torch.rand(count, generator=self.random) < 0.5
        if not dtype.is_floating_point and not dtype.is_complex:
            rows = -(-count // self.limit)
            # Distinct as far as possible: what writes twice to one place may do so in any order.
            places = torch.cat([torch.randperm(self.limit, generator=self.random) for _ in range(rows)])
            return places[:count].to(dtype)
        parts = 2 if dtype.is_complex else 1
        values = torch.randn(count * parts, generator=self.random, dtype=torch.float64)
        if self.recipe.edges:
            chosen = torch.rand(count * parts, generator=self.random) < 0.2
            edges = torch.tensor(_EDGES, dtype=torch.float64)
            picks = torch.randint(len(_EDGES), (count * parts,), generator=self.random)
            values = torch.where(chosen, edges[picks], values)
        if dtype.is_complex:
            return torch.view_as_complex(values.reshape(-1, 2)).to(dtype)
        return values.to(dtype)


def _span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first of a window to its last."""
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))


def _shaped_types(function: Sequence[Parameter]) -> list[Attribute]:
    return [parameter.kind for parameter in function if is_shaped(parameter.kind)]


def symbols(function: Sequence[Parameter]) -> list[str]:
    """Symbols of a signature, in order of appearance."""
    found = {parameter.symbol: None for parameter in function if parameter.symbol is not None}
    for kind in _shaped_types(function):
        offset = [offset_of(kind)] if isinstance(kind, BufferType) else []
        for size in (*sizes_of(kind), *(strides_of(kind) or ()), *offset):
            if isinstance(size, str) and size != UNKNOWN:
                found.update(dict.fromkeys(sorted(names_in(size))))
    return list(found)


def static_sizes(function: Sequence[Parameter]) -> set[int]:
    """Sizes above 1 that dimensions have."""
    sizes = [size for kind in _shaped_types(function) for size in sizes_of(kind)]
    return {size for size in sizes if isinstance(size, int) and size > 1}


def _shareable(function: Sequence[Parameter]) -> bool:
    """Whether two arguments may be one tensor."""
    kinds = [parameter.kind for parameter in function if parameter.is_read_only]
    return len(set(kinds)) < len(kinds)
