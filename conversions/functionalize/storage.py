"""The contents of storages as SSA values while a function is functionalized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.analysis.regions import covers, fills, is_empty
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.functionalize.splits import view_codecs
from vllm_ir.conversions.functionalize.strided import BitsCodec, FlattenCodec, StridedCodec
from vllm_ir.conversions.functionalize.views import Codec, count
from vllm_ir.dialects.vllm_ir.function import STORAGE, FuncOp, root_of
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, shape_of, sizes_of, strides_of
from vllm_ir.frontends.fx.build import CallBuilder, integer_argument, python_argument
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.regions import extent
from vllm_ir.frontends.fx.types import known_dtype, static_window, with_window
from vllm_ir.frontends.fx.values import is_sequence


@dataclass(eq=False)
class Donation:
    """Which window of a storage was given away, and to what."""

    op: Operation
    window: BufferType
    value: SSAValue


@dataclass(eq=False)
class Root:
    """One storage: a buffer that holds all of it that the function can reach, and its current value."""

    buffer: SSAValue
    initial: SSAValue | None = None
    current: SSAValue | None = None
    version: int = 0
    donations: list[Donation] = field(default_factory=list[Donation])
    has_gaps: bool = False
    """Whether it spans memory that no argument holds, which may be other arguments' or other threads'."""
    written: dict[Window, None] = field(default_factory=lambda: {})
    """Windows with a buffer of their own that were written."""

    @property
    def type(self) -> BufferType:
        """Window of the whole storage."""
        kind = self.buffer.type
        if not isinstance(kind, BufferType):
            raise PassFailedException(f"{kind} is not a buffer")
        return kind

    @property
    def is_argument(self) -> bool:
        """Whether the caller owns the storage."""
        return isinstance(self.buffer, BlockArgument) or isinstance(self.buffer.owner, ViewOp)

    @property
    def changed(self) -> bool:
        """Whether the storage holds something else than at first."""
        return self.current is not self.initial

    @property
    def given_away(self) -> bool:
        """Whether all of the storage was donated; what is left of one that was given away in part is the caller's."""
        return not is_empty(self.type) and any(covers(donation.window, self.type) for donation in self.donations)

    def final_writes(self, b: CallBuilder) -> list[tuple[SSAValue, SSAValue]]:
        """Values and the buffers that they have to be written to, so that memory holds what it should.

        That is one value of all of the memory, if the arguments hold all of it. Otherwise what lies between is not
        ours to write, and each window that was written gets its value.
        """
        if self.current is None:
            return []
        if not self.has_gaps:
            return [(self.current, self.buffer)]
        kept: list[Window] = []
        for window in sorted(self.written, key=lambda window: -count(shape_of(window.type))):
            if not any(covers(other.type, window.type) for other in kept):
                kept.append(window)
        return [(window.value(b), window.buffer) for window in kept if window.buffer is not None]


@dataclass(eq=False)
class Window:
    """A window onto a root: the root itself, or a view of another window."""

    root: Root
    type: BufferType
    parent: Window | None = None
    codec: Codec | None = None
    cached: SSAValue | None = None
    version: int = -1
    buffer: SSAValue | None = None
    """What the program has of it, if it is a part of a root that several arguments share."""

    def value(self, b: CallBuilder) -> SSAValue:
        """What the window holds now."""
        root = self.root
        if self.parent is None or self.codec is None:
            if root.current is None:
                op = b.add(ReadOp.create(operands=[root.buffer], result_types=[root.type.tensor]))
                op.results[0].name_hint = root.buffer.name_hint
                root.initial = root.current = op.results[0]
            return root.current
        if self.cached is None or self.version != root.version:
            self.cached = self.codec.read(b, self.parent.value(b), self.type.tensor)
            self.version = root.version
        return self.cached

    def assign(self, b: CallBuilder, value: SSAValue) -> None:
        """Replace what the window holds; nothing happens to one without elements, or to what that is a part of."""
        if is_empty(self.type):
            return
        chain: list[tuple[Window, SSAValue]] = []
        window, new = self, value
        while window.parent is not None and window.codec is not None:
            chain.append((window, new))
            base = window.parent.value(b) if window.codec.needs_base else None
            if base is None and _is_dynamic(window.parent.type):
                base = window.parent.value(b)
            new = window.codec.write(b, base, new, window.parent.type.tensor)
            window = window.parent
        root = self.root
        if root.current is None:
            # Overwritten before it was ever read: there is no old value, but the storage counts as changed.
            root.initial = None
        root.current = new
        root.version += 1
        root.written |= {changed: None for changed, _ in chain if changed.buffer is not None}
        for changed, piece in chain:
            changed.cached, changed.version = piece, root.version


def _is_dynamic(kind: BufferType) -> bool:
    return any(not isinstance(size, int) for size in sizes_of(kind))


class Storages:
    """All roots and windows of one function."""

    def __init__(self, function: FuncOp, b: CallBuilder) -> None:
        self.function = function
        self.b = b
        self.roots: list[Root] = []
        self.windows: dict[SSAValue, Window] = {}
        self.aliases: dict[SSAValue, SSAValue] = {}
        """For results that are an operand's buffer that operand, as the program has it."""
        self._flat: dict[Window, Window] = {}
        self._add_arguments()

    def _add_arguments(self) -> None:
        groups: dict[int, list[BlockArgument]] = {}
        beyond = _reached_beyond(self.function)
        for index, argument in enumerate(self.function.block.args):
            if not isinstance(argument.type, BufferType):
                continue
            number = self.function.argument_attributes(index).get(STORAGE)
            if isinstance(number, IntegerAttr):
                groups.setdefault(number.value.data, []).append(argument)
            elif argument in beyond:
                groups[-1 - index] = [argument]
            else:
                self._add_root(argument)
        for group in groups.values():
            self._add_group(group, [beyond.get(argument) for argument in group])

    def _add_root(self, buffer: SSAValue) -> Root:
        root = Root(buffer)
        self.roots.append(root)
        self.windows[buffer] = Window(root, root.type)
        return root

    def _add_group(self, group: Sequence[BlockArgument], beyond: Sequence[tuple[int, int] | None]) -> None:
        """One root for all memory that several arguments share, or that views of one reach."""
        kinds = [argument.type for argument in group if isinstance(argument.type, BufferType)]
        first = kinds[0]
        if all(kind == first for kind in kinds) and not any(beyond):
            root = self._add_root(group[0])
            for argument in group[1:]:
                self.windows[argument] = self.windows[root.buffer]
            return
        windows = [static_window(kind) for kind in kinds]
        # Of the narrowest elements, so that all windows begin and end with whole ones.
        base = min(range(len(group)), key=lambda index: _element_width(kinds[index]))
        first, per_element = kinds[base], _element_width(kinds[base])
        reached = [reach for reach in (*map(extent, kinds), *beyond) if reach is not None and reach != (0, 0)]
        start = min((reach[0] for reach in reached), default=0) // per_element
        length = -(-max((reach[1] for reach in reached), default=0) // per_element) - start
        odd = any(place * per_element % _element_width(kind) for place in (start, length) for kind in kinds)
        if odd or any(window is None for window in windows):
            names = ", ".join(f"%{argument.name_hint}" for argument in group)
            raise PassFailedException(
                f"arguments {names} share memory in ways that are not known at compile time; "
                "pass tensors of static shape and one dtype, or clones"
            )
        flat_type = with_window(first, [length], [1], start)
        op = self.b.view(torch.ops.aten.as_strided.default, [group[base], [length], [1], start], flat_type)
        root = Root(op, has_gaps=not fills(kinds, flat_type))
        self.roots.append(root)
        whole = self.windows[op] = Window(root, flat_type)
        flat = {first.element_type: (whole, start)}
        for argument, kind, window in zip(group, kinds, windows, strict=True):
            if window is not None:
                if kind.element_type not in flat:
                    flat[kind.element_type] = _as_elements(whole, start, kind)
                memory, begin = flat[kind.element_type]
                codec = StridedCodec(window[0], window[1], window[2] - begin)
                self.windows[argument] = Window(root, kind, memory, codec, buffer=argument)

    def add_alloc(self, op: AllocOp) -> None:
        """A new storage."""
        root = self._add_root(op.buffer)
        root.initial = root.current = op.init

    def add_view(self, op: ViewOp) -> None:
        """Windows onto the storage of an existing one."""
        base = self.windows[op.base]
        if op.target == "aten.as_strided.default":
            self.windows[op.results[0]] = self._strided(op, base)
            return
        for result, codec in zip(op.results, view_codecs(op, base.type), strict=True):
            kind = result.type
            if isinstance(kind, BufferType):
                self.windows[result] = Window(base.root, kind, base, codec)

    def add_alias(self, result: OpResult, operand: SSAValue) -> None:
        """A result that is the operand's buffer."""
        self.windows[result] = self.windows[operand]
        self.aliases[result] = operand

    def _strided(self, op: ViewOp, base: Window) -> Window:
        """`as_strided` refers to the storage, whatever window it is applied to."""
        kind = op.results[0].type
        if not isinstance(kind, BufferType):
            fail(op, f"as_strided gives {kind}, not a buffer")
        trees = [*op.args.data[1:], *(op.kwargs.data.values() if op.kwargs else ())]
        sizes, strides, *rest = (python_argument(tree, op.operands) for tree in trees)
        if not is_sequence(sizes) or not is_sequence(strides):
            fail(op, "as_strided without sizes and strides")
        flat, start = self._flattened(op, base.root)
        if kind.element_type != base.root.type.element_type:
            if any(
                place * _element_width(flat.type) % _element_width(kind) for place in (start, shape_of(flat.type)[0])
            ):
                fail(
                    op,
                    f"as_strided on a view as {kind.element_type} of memory whose elements of type "
                    f"{flat.type.element_type} do not make up whole ones; take the strided view first, then change the "
                    "dtype",
                )
            flat, start = _as_elements(flat, start, kind)
        asked = rest[0] if rest else None
        offset: int | SSAValue
        try:
            offset = integer_argument(asked)
        except FxImportError:
            if is_empty(base.type) and not is_empty(kind):
                # PyTorch's fake tensors and its kernels disagree about where views without elements begin.
                fail(op, f"as_strided without an offset on a window without elements, {base.type}; pass storage_offset")
            known = offset_of(kind)
            if not isinstance(known, int):
                fail(op, "as_strided without an offset on a window with a dynamic one; pass storage_offset")
            offset = known
        codec = StridedCodec(
            [integer_argument(size) for size in sizes],
            [integer_argument(stride) for stride in strides],
            self.b.sum(offset, -start) if start else offset,
        )
        self._check_inside(op, kind, flat, start)
        return Window(base.root, kind, flat, codec, buffer=op.results[0])

    def _check_inside(self, op: ViewOp, kind: BufferType, flat: Window, start: int) -> None:
        reach, length = extent(kind), shape_of(flat.type)[0]
        if reach is None or reach == (0, 0) or length == DYNAMIC_INDEX:
            return
        width = _element_width(kind)
        if reach[0] < start * width or reach[1] > (start + length) * width:
            fail(
                op,
                f"as_strided reaches elements {reach[0] // width} to {reach[1] // width} of memory that holds "
                f"{start} to {start + length}",
            )

    def _flattened(self, op: ViewOp, root: Root) -> tuple[Window, int]:
        """The root's memory as one dimension, and the position of its first element in the storage."""
        whole = Window(root, root.type) if root.buffer not in self.windows else self.windows[root.buffer]
        offset = offset_of(root.type)
        order = _memory_order(root.type)
        if order is None or not isinstance(offset, int):
            fail(op, f"as_strided on memory with gaps or of dynamic layout: {root.type}")
        if len(shape_of(root.type)) == 1:
            return whole, offset
        if whole not in self._flat:
            kind = with_window(root.type, [count(shape_of(root.type))], [1], offset)
            self._flat[whole] = Window(root, kind, whole, FlattenCodec(root.type, order))
        return self._flat[whole], offset


def _as_elements(flat: Window, start: int, kind: BufferType) -> tuple[Window, int]:
    """Flat memory as elements of the type of `kind`, and the position of the first of them in the storage."""
    old, new = _element_width(flat.type), _element_width(kind)
    first = start * old // new
    bits = with_window(flat.type, [shape_of(flat.type)[0] * old // new], [1], first, kind.element_type)
    return Window(flat.root, bits, flat, BitsCodec()), first


def _element_width(kind: BufferType) -> int:
    return known_dtype(kind.element_type).itemsize


def _memory_order(kind: BufferType) -> list[int] | None:
    """Dimensions from the largest stride to the smallest, if the window is dense; None otherwise."""
    window = static_window(kind)
    if window is None:
        # Contiguous by construction: a dynamic type without strides is row-major.
        return list(range(len(shape_of(kind)))) if strides_of(kind) is None else None
    sizes, strides, _ = window
    order = sorted(range(len(sizes)), key=lambda dimension: (-strides[dimension], dimension))
    step = 1
    for dimension in reversed(order):
        if sizes[dimension] != 1 and strides[dimension] != step:
            return None
        step *= max(sizes[dimension], 1)
    return order


def _reached_beyond(function: FuncOp) -> dict[BlockArgument, tuple[int, int]]:
    """Arguments whose views leave their window, or whose memory has gaps, and the bytes from and to which they go."""
    found: dict[BlockArgument, tuple[int, int]] = {}
    for op in function.block.ops:
        if not isinstance(op, ViewOp) or op.target != "aten.as_strided.default":
            continue
        root, kind = root_of(op.base), op.results[0].type
        if not isinstance(root, BlockArgument) or not isinstance(root.type, BufferType):
            continue
        reach, own = (extent(kind), extent(root.type)) if isinstance(kind, BufferType) else (None, None)
        if reach is None or own is None or reach == (0, 0):
            continue
        inside = own[0] <= reach[0] and reach[1] <= own[1]
        if _memory_order(root.type) is None or not inside:
            before = found.get(root, reach)
            found[root] = min(before[0], reach[0]), max(before[1], reach[1])
    return found
