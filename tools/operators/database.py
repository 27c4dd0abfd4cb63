"""PyTorch's own database of operators, with the samples of arguments that its tests use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.torch_internals import storage_id

Item = TypeVar("Item")


class Sample(Protocol):
    """A sample of PyTorch's tests: `op(input, *args, **kwargs)`."""

    input: object
    args: tuple[object, ...]
    kwargs: dict[str, object]
    broadcasts_input: bool
    """Whether the result has more elements than `input`."""


class Entry(Protocol):
    """An operator of PyTorch's database, the part that is needed here."""

    op: Callable[..., object]
    name: str
    variant_test_name: str
    supports_out: bool

    def supported_dtypes(self, device: str) -> set[torch.dtype]:
        """The types of elements that the operator takes."""
        ...

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
        """Arguments for it."""
        ...

    def get_method(self) -> Callable[..., object] | None:
        """The method of tensors that does the same; None if there is none."""
        ...

    def get_inplace(self) -> Callable[..., object] | None:
        """The method of tensors that writes the result into the first argument; None if there is none."""
        ...


def entries() -> dict[str, Entry]:
    """PyTorch's database of operators by name, with the variants of an operator as entries of their own."""
    from torch.testing._internal.common_methods_invocations import op_db  # needs expecttest, and seconds

    return {
        f"{entry.name} ({entry.variant_test_name})" if entry.variant_test_name else entry.name: entry
        for entry in cast("list[Entry]", op_db)
    }


def samples_of(entry: Entry, dtype: torch.dtype) -> list[Sample]:
    """All samples of one type of elements, the same each time."""
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
    return list(entry.sample_inputs("cpu", dtype, requires_grad=False))


@contextmanager
def seeds_left_alone() -> Generator[None]:
    """Have entries of random operators not set the seed in each call: that is no part of the operator."""
    from torch.testing._internal import common_methods_invocations as invocations

    def call(op: Callable[..., object], *args: object, **kwargs: object) -> object:
        return op(*args, **kwargs)

    with mock.patch.object(invocations, "wrapper_set_seed", call):
        yield


def spread(items: Sequence[Item], count: int) -> Sequence[Item]:
    """At most `count` of the items, at equal distances from the first one."""
    return items[:: -(-len(items) // count)] if items else items


def copied(values: Item) -> Item:
    """Nested containers with copies of their tensors: same layout, and in common memory where the originals are."""
    storages: dict[int, torch.UntypedStorage] = {}
    tensors: dict[int, Tensor] = {}

    def copy(tensor: Tensor) -> Tensor:
        if id(tensor) not in tensors:
            tensors[id(tensor)] = _copy(tensor, storages)
        return tensors[id(tensor)]

    return cast(Item, pytree.tree_map_only(Tensor, copy, values))


def _copy(tensor: Tensor, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    if tensor.layout != torch.strided or type(tensor) is not Tensor:
        return tensor.detach().clone()
    storage = tensor.untyped_storage()
    key = storage_id(tensor)
    if key not in storages:
        storages[key] = storage.clone()
    plain = torch.empty(0, dtype=tensor.dtype)
    plain.set_(storages[key], tensor.storage_offset(), tensor.size(), tensor.stride())  # pyright: ignore[reportArgumentType]  # stub: Storage
    plain = plain.conj() if tensor.is_conj() else plain
    return torch.ops.aten._neg_view.default(plain) if tensor.is_neg() else plain
