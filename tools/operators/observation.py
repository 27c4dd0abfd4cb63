"""Everything that the caller of a program can see of one run of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.torch_internals import storage_id

Item = TypeVar("Item")
SEED = 1234
_EMPTY = "no memory, or new one that holds nothing"


def memory(storage: torch.UntypedStorage) -> bytes:
    """All bytes of a storage, also those between and around the windows onto it."""
    window = torch.empty(0, dtype=torch.uint8).set_(storage)  # pyright: ignore[reportArgumentType, reportUnknownMemberType]  # stub: Storage
    return bytes(window.numpy().tobytes())


def contents(tensor: Tensor) -> bytes:
    """The elements in row-major order, bit by bit: NaN equals itself, and 0.0 differs from -0.0."""
    values = tensor.detach().resolve_conj().resolve_neg()
    # Not `contiguous`, which leaves the strides of dimensions of size 1 as they are.
    dense = torch.empty(values.shape, dtype=values.dtype).copy_(values).reshape(-1)
    return bytes(dense.view(torch.uint8).numpy().tobytes())


def strides(tensor: Tensor) -> list[int]:
    """Strides where they matter: not of dimensions of size 1, nor of tensors without elements."""
    if tensor.numel() == 0:
        return []
    return [step if size != 1 else 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)]


def window(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape, and strides where they matter."""
    return tuple(tensor.shape), tuple(strides(tensor))


def tensors_in(values: object) -> list[Tensor]:
    """All tensors in nested containers."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


@dataclass
class _Storages:
    """Storages by where they lie; results of the program get numbers in order of appearance."""

    arguments: dict[int, str]
    fresh: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])

    def label(self, tensor: Tensor) -> tuple[str, int]:
        """Whose storage a tensor is in, and at which byte it starts (in new storages: behind the first one seen)."""
        storage = tensor.untyped_storage()
        if tensor.numel() == 0:  # has no address
            return self.arguments.get(storage.data_ptr(), _EMPTY), 0
        if (known := self.arguments.get(storage.data_ptr())) is not None:
            return known, tensor.data_ptr() - storage.data_ptr()
        name, start = self.fresh.setdefault(storage.data_ptr(), (f"new memory {len(self.fresh)}", tensor.data_ptr()))
        return name, tensor.data_ptr() - start


@dataclass
class Observation:
    """What a caller can see of one run of a program."""

    structure: str
    results: list[object]
    """Of each tensor its type of elements, shape, strides, flags and contents; other results in words."""
    result_memory: list[object]
    same_objects: list[object]
    arguments: list[object]
    memory: list[bytes]
    random_state: bytes

    def differing(self, other: Observation) -> list[str]:
        """Names of what differs."""
        return [entry.name for entry in fields(self) if getattr(self, entry.name) != getattr(other, entry.name)]

    def compare(self, other: Observation, what: str) -> None:
        """Fail, naming the first difference to what eager mode shows."""
        for name in self.differing(other):
            mine, theirs = getattr(self, name), getattr(other, name)
            raise AssertionError(f"{what}: {name} differ\n  eager: {mine}\n  here:  {theirs}")


def _describe(value: object) -> object:
    if not isinstance(value, Tensor):
        return (type(value).__name__, repr(value))
    flags = (value.is_conj(), value.is_neg(), str(value.device))
    return (value.dtype, tuple(value.shape), strides(value), flags, contents(value))


def observe(program: Callable[..., object], arguments: Sequence[object], state: Sequence[Tensor] = ()) -> Observation:
    """Run `program`; `state` are tensors that it knows beside its arguments (buffers of a module)."""
    inputs = tensors_in([*arguments, *state])
    held = [tensor.untyped_storage() for tensor in inputs]
    known: dict[int, torch.UntypedStorage] = {}
    for storage in held:
        known.setdefault(storage.data_ptr(), storage)
    storages = _Storages({address: f"memory {number}" for number, address in enumerate(known) if address})
    torch.manual_seed(SEED)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
    with torch.no_grad():
        result = program(*arguments)
    random_state = bytes(torch.get_rng_state().numpy().tobytes())
    leaves, spec = cast("tuple[list[object], object]", pytree.tree_flatten(result))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return Observation(
        structure=str(spec),
        results=[_describe(leaf) for leaf in leaves],
        result_memory=[storages.label(tensor) for tensor in tensors],
        same_objects=[next((i for i, x in enumerate(inputs) if x is tensor), None) for tensor in tensors],
        arguments=[
            (tensor.dtype, tuple(tensor.shape), strides(tensor), tensor.storage_offset() * tensor.element_size())
            for tensor in inputs
        ],
        memory=[memory(storage) for storage in known.values()],
        random_state=random_state,
    )


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
