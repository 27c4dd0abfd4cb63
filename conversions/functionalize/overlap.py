"""Operands of one call that share memory: what eager refuses is refused, and equal windows become one operand."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.analysis.regions import is_empty, may_overlap
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.functionalize.storage import Root, Storages, Window
from vllm_ir.dialects.torch.arguments import map_operands, operand_indices
from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of, offset_of, shape_of, strides_of
from vllm_ir.frontends.fx.regions import extent, overlaps_itself
from vllm_ir.frontends.fx.schemas import OpInfo
from vllm_ir.frontends.fx.types import dtype_of, is_shaped, static_window
from vllm_ir.frontends.fx.values import decode, operand_reference

_PROBE_BYTES = 1 << 24
"""Memory that asking eager may take."""

_REFUSAL = "a single memory location"
"""What every message of PyTorch's about overlapping operands says (ATen/MemoryOverlap.cpp)."""


def check_operands(op: CallOp, info: OpInfo, storages: Storages) -> None:
    """Stop where a written operand overlaps itself, or another operand in a way that makes the result undefined."""
    written = set(op.write_indices)
    for index in written:
        operand = op.operands[index]
        if not isinstance(operand.type, BufferType):
            continue
        if overlaps_itself(operand.type):
            fail(
                op,
                f"writes {_name(op, index)}, whose elements share memory; "
                "the result would depend on the order of the writes: write to a clone",
            )
        _check_bases(op, index, storages.windows[operand])
    shared = False
    for first, second in _overlapping(op, storages):
        index, other = (first, second) if first in written else (second, first)
        if index in written:
            shared = True
            _check_pair(op, info, index, other, other in written)
    if (shared or _repeats(op)) and _is_native(info) and _eager_refuses(op, info, storages):
        fail(op, "some of its operands share memory in a way that eager refuses; clone what is read first")


def _check_bases(op: CallOp, written: int, window: Window) -> None:
    """Stop where the written window is a part of one in which other elements are the same memory, and change too."""
    if is_empty(window.type):
        return
    base = window.parent
    while base is not None:
        if overlaps_itself(base.type):
            fail(
                op,
                f"writes {_name(op, written)}, a view of a window ({base.type}) whose elements share memory, so that "
                "others of them change as well: write to what was expanded, or to a clone",
            )
        base = base.parent


def _overlapping(op: CallOp, storages: Storages) -> Iterator[tuple[int, int]]:
    """Pairs of operands that may have memory in common."""
    groups: dict[Root, list[int]] = {}
    for index, operand in enumerate(op.operands):
        if isinstance(operand.type, BufferType):
            groups.setdefault(storages.windows[operand].root, []).append(index)
    for group in groups.values():
        if len(group) > 1:
            yield from _overlapping_windows([(index, op.operands[index].type) for index in group])


def _overlapping_windows(windows: Sequence[tuple[int, Attribute]]) -> Iterator[tuple[int, int]]:
    """In order of where the windows start, so that those of a list that lie one behind the other are not compared."""
    placed: list[tuple[float, float, int, Attribute]] = []
    for index, kind in windows:
        start, end = (extent(kind) if isinstance(kind, BufferType) else None) or (-math.inf, math.inf)
        placed.append((start, end, index, kind))
    placed.sort(key=lambda entry: entry[:3])
    open_windows: list[tuple[float, float, int, Attribute]] = []
    for entry in placed:
        open_windows = [other for other in open_windows if other[1] > entry[0]]
        for other in open_windows:
            if may_overlap(other[3], entry[3]):
                yield other[2], entry[2]
        open_windows.append(entry)


def _is_native(info: OpInfo) -> bool:
    return info.overload.namespace in ("aten", "prims")


def _repeats(op: CallOp) -> bool:
    """Whether a written operand is also another argument."""
    seen: set[int] = set()
    for tree in op.arguments():
        here = set(operand_indices([tree]))
        if here & seen & set(op.write_indices):
            return True
        seen |= here
    return False


def _name(op: CallOp, index: int) -> str:
    value = op.operands[index]
    return f"%{value.name_hint or index} ({value.type})"


def _check_pair(op: CallOp, info: OpInfo, written: int, other: int, both_written: bool) -> None:
    first, second = op.operands[written].type, op.operands[other].type
    if first == second:
        return  # one operand in two roles
    if not _is_native(info) or both_written or isinstance(op.arguments()[info.writes[0]], ArrayAttr):
        fail(
            op,
            f"writes {_name(op, written)}, which overlaps the operand {_name(op, other)}; "
            "what the operator sees would depend on its implementation: pass a clone",
        )
    if _is_partial(first, second):
        fail(
            op,
            f"some elements of {_name(op, written)} and {_name(op, other)} are the same memory and eager refuses the "
            "call; clone the source first",
        )


def _is_partial(first: Attribute, second: Attribute) -> bool:
    """PyTorch's rule for partial overlap: both dense, in one storage, different windows with bytes in common.

    `assert_no_partial_overlap` in ATen/MemoryOverlap.cpp; memory with gaps is "too hard" and let through.
    """
    if not isinstance(first, BufferType) or not isinstance(second, BufferType):
        return False
    return _is_dense(first) and _is_dense(second) and extent(first) != extent(second)


def _is_dense(kind: BufferType) -> bool:
    window = static_window(kind)
    if window is None:
        return False
    sizes, strides, _ = window
    order = sorted((step, size) for step, size in zip(strides, sizes, strict=True) if size != 1)
    expected = 1
    for step, size in order:
        if step != expected:
            return False
        expected *= size
    return True


# Asking eager


def _eager_refuses(op: CallOp, info: OpInfo, storages: Storages) -> bool:
    """Whether eager refuses the call because of the memory that its operands share.

    Operators differ in what they check (`add_` takes the same tensor twice, `index_put_` does not), so eager is asked,
    with zeros in windows like those of the operands. False where that is not possible: for windows of dynamic size, on
    other devices than the CPU, and for large windows.
    """
    with unset_fake_temporarily():
        values = _probes(op, storages)
        if values is None:
            return False
        bound = [decode(tree, values, str) for tree in op.arguments()]
        keywords = dict(zip([a.name for a in info.arguments[info.positional :]], bound[info.positional :], strict=True))
        try:
            with _random_state_kept(), torch.no_grad():
                info.overload(*bound[: info.positional], **keywords)
        except (RuntimeError, ValueError, IndexError) as error:
            return _REFUSAL in str(error)
    return False


@contextmanager
def _random_state_kept() -> Generator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _probes(op: CallOp, storages: Storages) -> list[Tensor] | None:
    """Tensors of zeros for the operands, which share memory as those do; None if they are large or not known."""
    windows = [_Probe.of(operand.type) for operand in op.operands]
    keys: list[Root | SSAValue] = [
        storages.windows[operand].root if isinstance(operand.type, BufferType) else operand for operand in op.operands
    ]
    sizes: dict[Root | SSAValue, int] = {}
    for key, window in zip(keys, windows, strict=True):
        if window is None:
            return None
        sizes[key] = max(sizes.get(key, 0), window.end)
    if sum(sizes.values()) > _PROBE_BYTES:
        return None
    # Whole numbers of the widest elements, so that the memory can be looked at as elements of any type.
    memory = {key: torch.zeros(-(-size // 16) * 16, dtype=torch.uint8) for key, size in sizes.items()}
    return [window.onto(memory[key]) for key, window in zip(keys, windows, strict=True) if window is not None]


@dataclass(frozen=True)
class _Probe:
    """A static window on the CPU, in elements."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, kind: Attribute) -> _Probe | None:
        """The window that a type describes; None for dynamic ones, for other devices and for numbers."""
        if not is_shaped(kind) or device_of(kind) != "cpu":
            return None
        dtype, sizes, strides = dtype_of(kind.element_type), shape_of(kind), strides_of(kind) or ()
        steps = tuple(step for step in strides if isinstance(step, int))
        offset = offset_of(kind) if isinstance(kind, BufferType) else 0
        if dtype is None or DYNAMIC_INDEX in sizes or len(steps) != len(sizes) or not isinstance(offset, int):
            return None
        return cls(dtype, sizes, steps, offset)

    @property
    def end(self) -> int:
        """The first byte behind the window."""
        last = self.offset + sum((size - 1) * step for size, step in zip(self.sizes, self.strides, strict=True))
        return 0 if 0 in self.sizes else (last + 1) * self.dtype.itemsize

    def onto(self, memory: Tensor) -> Tensor:
        """The window onto memory that is given as bytes."""
        if 0 in self.sizes:
            return torch.empty(self.sizes, dtype=self.dtype)
        return memory.view(self.dtype).as_strided(self.sizes, self.strides, self.offset)


# One window in two roles


def merge_operands(op: CallOp, storages: Storages) -> None:
    """Make operands that are the same window one operand, so that a copy of one is a copy of all.

    One that is written stands for the others: `check_operands` knows of it that it can be written.
    """
    first: dict[tuple[Root, Attribute], int] = {}
    position: list[int] = []
    kept: list[SSAValue] = []
    for operand in op.operands:
        new = len(kept)
        if isinstance(operand.type, BufferType):
            new = first.setdefault((storages.windows[operand].root, operand.type), new)
        if new == len(kept):
            kept.append(operand)
        position.append(new)
    if len(kept) == len(position):
        return
    for index in op.write_indices:
        kept[position[index]] = op.operands[index]
    _renumber(op, position, kept)


def _renumber(op: CallOp, position: Sequence[int], kept: Sequence[SSAValue]) -> None:
    replace: dict[int, Attribute] = {old: operand_reference(new) for old, new in enumerate(position)}
    op.args = ArrayAttr([map_operands(tree, replace) for tree in op.args.data])
    if op.kwargs is not None:
        op.kwargs = DictionaryAttr({name: map_operands(tree, replace) for name, tree in op.kwargs.data.items()})
    for name, indices in (("reads", op.read_indices), ("writes", op.write_indices)):
        if indices:
            op.properties[name] = index_array(sorted({position[index] for index in indices}))
    if op.returns is not None:
        op.returns = index_array(position[index] if index >= 0 else -1 for index in op.return_indices)
    op.operands = kept
