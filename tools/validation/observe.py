"""What the caller of a module can see of one run of it, and how two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from vllm_ir.backends.interpreter.interpret import Execution
from vllm_ir.tools.operators.observation import window

_NO_MEMORY = ("no memory", 0)
_NEW = "new memory"


@dataclass(frozen=True)
class Contents:
    """The elements of a tensor or storage after a run, flat; `known` tells which are defined (None: all)."""

    name: str
    values: Tensor
    known: Tensor | None = None


@dataclass(frozen=True)
class Observation:
    """What one run shows: facts that must be equal, and elements that may differ by rounding."""

    facts: dict[str, object]
    contents: list[Contents]


def observe(execution: Execution, inputs: Sequence[object], *, values_only: bool = False) -> Observation:
    """What a run on `inputs` shows. With `values_only`, strides and shared memory of results do not count."""
    given = [value for value in inputs if isinstance(value, Tensor)]
    storages: dict[int, Tensor] = {}
    for tensor in given:
        storages.setdefault(tensor.untyped_storage().data_ptr(), tensor)
    leaves = cast("list[object]", pytree.tree_leaves(execution.result))
    labels = _Labels(storages, values_only=values_only)
    facts: dict[str, object] = {"number of outputs": len(leaves)}
    contents: list[Contents] = []
    for position, leaf in enumerate(leaves):
        name = f"output {position}"
        if isinstance(leaf, Tensor):
            facts[name] = (str(leaf.dtype), tuple(leaf.shape)) if values_only else (str(leaf.dtype), *window(leaf))
            facts[f"memory of {name}"] = labels.label(leaf)
            contents.append(Contents(name, flat(leaf)))
        else:
            facts[name] = leaf
    for position, tensor in enumerate(given):
        facts[f"window of tensor {position}"] = (*window(tensor), tensor.storage_offset())
    for number, tensor in enumerate(storages.values()):
        memory = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        marks = execution.undefined(tensor.untyped_storage())
        known = None if marks is None else ~marks[: memory.numel() * memory.element_size()].view(len(memory), -1).any(1)
        contents.append(Contents(f"memory {number} of the inputs", memory.clone(), known))
    return Observation(facts, contents)


def flat(tensor: Tensor) -> Tensor:
    """A copy of the elements in row-major order."""
    values = tensor.detach().resolve_conj().resolve_neg()
    return torch.empty(values.shape, dtype=values.dtype).copy_(values).reshape(-1)


class _Labels:
    """Whose memory tensors are in; new storages get numbers in order of appearance."""

    def __init__(self, storages: dict[int, Tensor], *, values_only: bool) -> None:
        self._given = {address: f"memory {number}" for number, address in enumerate(storages) if address}
        self._new: dict[int, tuple[str, int]] = {}
        self._values_only = values_only

    def label(self, tensor: Tensor) -> tuple[str, int]:
        """The storage, and the byte at which the tensor begins in it."""
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if storage.nbytes() == 0 or tensor.numel() == 0:
            return _NO_MEMORY
        if address in self._given:
            return self._given[address], tensor.data_ptr() - address
        if self._values_only:
            return _NEW, 0
        name, start = self._new.setdefault(address, (f"{_NEW} {len(self._new)}", tensor.data_ptr()))
        return name, tensor.data_ptr() - start


@dataclass(frozen=True)
class Difference:
    """Something that two runs do not have in common; `error` is the largest one, None where it is no rounding."""

    name: str
    text: str
    error: float | None = None
    position: int = -1
    """Number of the contents that differ."""


def differences(before: Observation, after: Observation) -> Iterator[Difference]:
    """What differs, facts first."""
    for name, fact in before.facts.items():
        other = after.facts.get(name)
        if not (fact == other or (fact != fact and other != other)):  # NaN is like NaN
            yield Difference(name, f"{name}: {fact} before, {other} behind")
            return
    for position, (left, right) in enumerate(zip(before.contents, after.contents, strict=False)):
        if (found := _difference(left, right, position)) is not None:
            yield found


def _difference(left: Contents, right: Contents, position: int) -> Difference | None:
    one, other = left.values, right.values
    known = [side for side in (left.known, right.known) if side is not None]
    for marks in known:
        one, other = one.where(marks, torch.zeros_like(one)), other.where(marks, torch.zeros_like(other))
    different = ~same_elements(one, other)
    if not different.any():
        return None
    error = errors(one, other)
    place = int(torch.where(different, error, -1.0).argmax())
    text = (
        f"{left.name}: {different.sum().item()} of {len(one)} elements differ, element {place} is {one[place].item()}"
    )
    largest = float(error[different].max())
    numeric = one.dtype.is_floating_point or one.dtype.is_complex
    return Difference(left.name, f"{text} before, {other[place].item()} behind", largest if numeric else None, position)


def same_elements(one: Tensor, other: Tensor) -> Tensor:
    """Which elements have the same bits, or are both not a number."""
    if one.dtype.is_complex:
        one, other = torch.view_as_real(one), torch.view_as_real(other)
        return same_elements(one.reshape(-1), other.reshape(-1)).reshape(-1, 2).all(-1)
    width = one.element_size()
    same = (one.view(torch.uint8) == other.view(torch.uint8)).reshape(-1, width).all(-1)
    return same | (one.isnan() & other.isnan()) if one.dtype.is_floating_point else same


def errors(one: Tensor, other: Tensor) -> Tensor:
    """Distances of elements; infinite where only one of two is finite."""
    wide = torch.complex128 if one.dtype.is_complex else torch.float64
    distance = (one.to(wide) - other.to(wide)).abs()
    return torch.where(same_elements(one, other), 0.0, distance.nan_to_num(torch.inf, torch.inf, torch.inf))
