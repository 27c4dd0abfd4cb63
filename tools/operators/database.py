"""PyTorch's own database of operators, with the samples of arguments that its tests use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast
from unittest import mock

import torch

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
