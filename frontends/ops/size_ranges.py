"""Priority lists that depend on the size of a dimension: one kernel for few rows, another one for many."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.op import IrOp

Bounds: TypeAlias = tuple[int | None, int | None]
Given: TypeAlias = Sequence[tuple[Bounds, Sequence[str]]]


@dataclass(frozen=True)
class SizeRange:
    """The providers for sizes from `first` to `last`, both included; None for no bound."""

    first: int
    last: int | None
    providers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.first}..{'' if self.last is None else self.last}: {list(self.providers)}"


@dataclass(frozen=True, init=False)
class SizeRanges:
    """A priority list for each range of sizes: `SizeRanges([((1, 256), ["cpu"]), ((257, None), ["native"])])`.

    It stands wherever a priority list does. In a compiled graph whose size is symbolic the choice holds for the range
    that the size is in: torch guards on it, so that there is one graph for each range that occurs. Sizes that no range
    has get the platform's order.

    Attributes:
        ranges: by growing size.
        of: the tensor parameter whose size counts; None for the op's first activation, or its first tensor.
        dim: the dimension of it.
    """

    ranges: tuple[SizeRange, ...]
    of: str | None
    dim: int

    def __init__(self, ranges: Given, *, of: str | None = None, dim: int = 0) -> None:
        """Make the lists of `((first, last), providers)` pairs.

        Raises:
            TypeError: `ranges` is no such list.
            ValueError: there is none, two overlap, or one has no size in it.
        """
        made = sorted(map(_size_range, ranges), key=lambda entry: entry.first)
        if not made:
            raise ValueError("size ranges: there must be at least one ((first, last), providers)")
        for one, other in itertools.pairwise(made):
            if one.last is None or one.last >= other.first:
                raise ValueError(f"size ranges: {one} and {other} overlap; the bounds belong to the range")
        object.__setattr__(self, "ranges", tuple(made))
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "dim", dim)

    @property
    def providers(self) -> tuple[str, ...]:
        """All providers that some range names, in the order of the ranges."""
        return tuple(dict.fromkeys(provider for entry in self.ranges for provider in entry.providers))

    def mapped(self, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> SizeRanges:
        """The same ranges with other lists."""
        pairs = [((entry.first, entry.last), change(entry.providers)) for entry in self.ranges]
        return SizeRanges(pairs, of=self.of, dim=self.dim)

    def check(self, op: IrOp) -> None:
        """Refuse an op that has no such dimension; ValueError names the parameter."""
        position = self._position(op)
        if position is None:
            known = [argument.name for argument in op.schema.arguments if "Tensor" in str(argument.type)]
            raise ValueError(
                f"vllm_ir.{op.name}: size ranges of {self.of!r}, which is no tensor of it; there are {known}"
            )

    def for_call(self, op: IrOp, args: Sequence[object]) -> tuple[str, ...] | None:
        """The list for the arguments of a call, by position with defaults filled in; None if no range has the size.

        A symbolic size is compared, which makes the graph that is being compiled depend on the answer.

        Raises:
            RuntimeError: the tensor is missing or has no such dimension, or the size belongs to no compilation, so that
                nothing could keep the graph to the range.
        """
        position = self._position(op)
        tensor = None if position is None else args[position]
        named = "?" if position is None else op.parameters[position]
        if not isinstance(tensor, Tensor) or not -tensor.dim() <= self.dim < tensor.dim():
            shape = list(tensor.shape) if isinstance(tensor, Tensor) else tensor
            raise RuntimeError(f"vllm_ir.{op.name}: size ranges of {named!r}, dimension {self.dim}, but it is {shape}")
        size: object = tensor.shape[self.dim]
        for entry in self.ranges:
            if _within(size, entry):
                return entry.providers
        return None

    def place(self, op: IrOp) -> tuple[int, int]:
        """The position of the tensor among the op's parameters, and the dimension; errors as for `check`."""
        self.check(op)
        return self._position(op) or 0, self.dim

    def _position(self, op: IrOp) -> int | None:
        tensors = [i for i, argument in enumerate(op.schema.arguments) if "Tensor" in str(argument.type)]
        if self.of is None:
            return next(iter((*op.activation_indices, *tensors)), None)
        return next((i for i in tensors if op.parameters[i] == self.of), None)

    def __repr__(self) -> str:
        return f"SizeRanges({', '.join(map(str, self.ranges))}, of={self.of!r}, dim={self.dim})"


Priority: TypeAlias = tuple[str, ...] | SizeRanges


def _within(size: object, entry: SizeRange) -> bool:
    """Whether a size is in a range; for a symbolic one, as it is now, which its graph depends on from then on."""
    symbolic = cast("int | torch.SymInt", size)
    return bool(symbolic >= entry.first) and (entry.last is None or bool(symbolic <= entry.last))


def _size_range(given: object) -> SizeRange:
    try:
        (first, last), providers = cast("tuple[Bounds, Sequence[str]]", given)
    except (TypeError, ValueError):
        raise TypeError(f"size ranges: expected ((first, last), providers), got {given!r}") from None
    if not all(bound is None or type(bound) is int for bound in (first, last)) or isinstance(providers, str):
        raise TypeError(f"size ranges: expected ((first, last), [provider, ...]), got {given!r}")
    first = 0 if first is None else first
    if last is not None and last < first:
        raise ValueError(f"size ranges: {first}..{last} has no size in it")
    return SizeRange(first, last, tuple(providers))
