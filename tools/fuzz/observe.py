"""What the caller of a program can see of its calls, and how two such views differ."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from vllm_ir.tools.fuzz.footprint import is_dense, overlap
from vllm_ir.tools.fuzz.program import Loaded, Runnable, dtype_named, state_of
from vllm_ir.tools.fuzz.torch_internals import values_of
from vllm_ir.tools.operators.observation import window


@dataclass(frozen=True)
class Seen:
    """One call: facts by name, in the order in which they are compared; tensors are held as copies."""

    facts: dict[str, list[object]]


def observe(loaded: Loaded, prepare: Callable[[Runnable], Runnable]) -> list[Seen]:
    """Call the program, as `prepare` makes it callable, with the arguments of each call in turn."""
    program = loaded.make()
    run = prepare(program)
    original = [tensor.untyped_storage() for tensor in state_of(program).values()]
    return [_observe_call(loaded, number, run, program, original) for number in range(loaded.calls)]


def _observe_call(
    loaded: Loaded, number: int, run: Runnable, program: Runnable, original: Sequence[torch.UntypedStorage]
) -> Seen:
    arguments = loaded.inputs(number)
    state = state_of(program)
    given = [value for value in (*arguments, *state.values()) if isinstance(value, Tensor)]
    storages: dict[int, torch.UntypedStorage] = {}
    for tensor in given:
        storages.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage())
    # Buffers may have been replaced by results of an earlier call, whose memory backends may make larger than eager.
    known = {storage.data_ptr() for storage in original}
    known |= {value.untyped_storage().data_ptr() for value in arguments if isinstance(value, Tensor)}
    dtypes = {tensor.untyped_storage().data_ptr(): tensor.dtype for tensor in reversed(given)}
    with torch.no_grad():
        result = run(*arguments)
    leaves, spec = pytree.tree_flatten(result)
    after = state_of(program)
    results = [_value(leaf, new=loaded.dynamic and _is_new(leaf, storages)) for leaf in leaves]
    undefined: list[Tensor] = []
    for position, dtype, *where in loaded.undefined.get(number, ()):
        undefined.append(_window_onto(cast(Tensor, arguments[position]), dtype, *where))
    sharing = _sharing(leaves, given, storages, after, undefined)
    for spoiled in undefined:
        spoiled.zero_()
    return Seen(
        {
            "structure": [str(spec)],
            "results": results,
            "memory": [_bytes(storage, dtypes[at]) for at, storage in storages.items() if at in known],
            "memory of earlier results": [
                _bytes(storage, dtypes[at]) for at, storage in storages.items() if at not in known
            ],
            "shared memory": sharing,
            "arguments": [window(tensor) for tensor in given],
            "buffers": [(name, _value(tensor)) for name, tensor in sorted(after.items())],
        }
    )


def _window_onto(argument: Tensor, dtype: str, *where: object) -> Tensor:
    shape, strides, offset = cast("tuple[Sequence[int], Sequence[int], int]", where)
    memory = torch.empty(0, dtype=dtype_named(dtype)).set_(argument.untyped_storage())
    return memory.as_strided(shape, strides, offset)


@dataclass(frozen=True)
class _Tensor:
    """A tensor at the time when it was seen."""

    window: tuple[object, ...]
    values: Tensor
    gaps: bool = False
    """Whether it is new, of changing size, and has gaps, which compiled programs leave out."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Tensor) or not _equal(self.values, other.values):
            return False
        return self.window == other.window or (self.gaps and self.window[:-1] == other.window[:-1])

    def __hash__(self) -> int:
        return hash(self.window)

    def __repr__(self) -> str:
        return f"{self.window} {values_of(self.values)}"


def _equal(left: Tensor, right: Tensor) -> bool:
    """Bit by bit, except that every NaN is like every other."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if torch.equal(left.view(torch.uint8), right.view(torch.uint8)):
        return True
    if left.dtype.is_complex:
        left, right = torch.view_as_real(left).reshape(-1), torch.view_as_real(right).reshape(-1)
    if not left.dtype.is_floating_point:
        return False
    same = (left.view(torch.uint8) == right.view(torch.uint8)).reshape(len(left), -1).all(-1)
    return bool((same | (left.isnan() & right.isnan())).all())


def _is_new(leaf: object, storages: dict[int, torch.UntypedStorage]) -> bool:
    return isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in storages


def _value(leaf: object, *, new: bool = False) -> object:
    """What is compared of a result; `new` if it is in new memory and its size may change."""
    if not isinstance(leaf, Tensor):
        return (type(leaf).__name__, repr(leaf))
    values = leaf.detach().resolve_conj().resolve_neg()
    dense = torch.empty(values.shape, dtype=values.dtype).copy_(values)
    gaps = new and not is_dense(values)
    return _Tensor((str(leaf.dtype), *window(leaf)), dense.reshape(-1), gaps)


def _bytes(storage: torch.UntypedStorage, dtype: torch.dtype) -> _Tensor:
    """All of a storage, also what is between and around the windows onto it."""
    return _Tensor((), torch.empty(0, dtype=dtype).set_(storage).clone())


def _sharing(
    leaves: Sequence[object],
    given: Sequence[Tensor],
    storages: dict[int, torch.UntypedStorage],
    buffers: dict[str, Tensor],
    undefined: Sequence[Tensor],
) -> list[object]:
    """Whose memory results and buffers are in, where they begin there, and which argument they are.

    What was given away may come back as a new tensor.
    """
    names = {address: f"memory {number}" for number, address in enumerate(storages) if address}
    fresh: dict[int, tuple[str, int]] = {}
    label = functools.partial(_label, names=names, fresh=fresh)
    seen: list[object] = []
    for leaf in (*leaves, *(tensor for _, tensor in sorted(buffers.items()))):
        if isinstance(leaf, Tensor) and any(overlap(leaf, spoiled) for spoiled in undefined):
            seen.append((f"new memory {len(fresh)}", 0, None))
            fresh[-1 - len(fresh)] = ("", 0)
        elif isinstance(leaf, Tensor):
            identity = next((number for number, tensor in enumerate(given) if tensor is leaf), None)
            seen.append((*label(leaf), identity))
    return seen


def _label(tensor: Tensor, names: dict[int, str], fresh: dict[int, tuple[str, int]]) -> tuple[str, int]:
    storage = tensor.untyped_storage()
    address = storage.data_ptr()
    if tensor.numel() == 0 or storage.nbytes() == 0 or address == 0:
        # Fake tensors lose the storage of some views without elements, and nothing can be read or written there.
        return "no memory", 0
    if address in names:
        return names[address], tensor.data_ptr() - address
    name, start = fresh.setdefault(address, (f"new memory {len(fresh)}", tensor.data_ptr()))
    return name, tensor.data_ptr() - start


@dataclass(frozen=True)
class Difference:
    """The first thing in which two views differ."""

    fact: str
    text: str


def difference(
    expected: Sequence[Seen], got: Sequence[Seen], *, new_memory: bool = True, sizes: bool = True
) -> Difference | None:
    """What differs first, call by call and fact by fact.

    Without `new_memory`, results that are in new memory need not share it with each other as in eager mode. Without
    `sizes`, new memory may be larger than in eager mode.
    """
    for number, (left, right) in enumerate(zip(expected, got, strict=True)):
        for fact, values in left.facts.items():
            if fact == "memory of earlier results" and not sizes:
                continue
            others = right.facts[fact]
            if fact == "shared memory" and not new_memory:
                values, others = _without_new(values), _without_new(others)
            if len(values) == len(others) and all(a == b for a, b in zip(values, others, strict=True)):
                continue
            pairs = list(zip(values, others, strict=False))
            where = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
            return Difference(
                fact, f"call {number}, {fact} {where}:\n  eager {values[where:][:1]}\n  here  {others[where:][:1]}"
            )
    return None


def _without_new(sharing: Sequence[object]) -> list[object]:
    found: list[object] = []
    for entry in sharing:
        name, *_ = cast("tuple[str, object]", entry)
        found.append("new memory" if name.startswith("new memory") else entry)
    return found
