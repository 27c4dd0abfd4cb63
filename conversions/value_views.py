"""Views of values by what they show: which elements of an older value, in which order.

A value has no memory, and what a view operator does to it does not depend on strides: the elements of a view are told
by the window that it gives of a row-major tensor of the same shape. Left out are operators that are told strides or
positions in memory (`as_strided`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import torch
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, NoneAttr
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.analysis.polynomials import Number, equal, parse
from vllm_ir.conversions.analysis.regions import same_window
from vllm_ir.conversions.analysis.windows import ViewWindows, Windows, whole_window
from vllm_ir.conversions.eliminate_clones.updates import updates_of, view_arguments
from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType, LayoutAttr, element_type_of, sizes_of
from vllm_ir.frontends.fx.schemas import op_info, resolve, scattered_view
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload
from vllm_ir.frontends.fx.types import is_tensor

_NONE = NoneAttr()
_NO_RESULT: Windows = ()


@dataclass(frozen=True)
class Callee:
    """What a call does, as far as passes on values ask."""

    overload: Overload | None
    """The operator; None for functions of sizes and calls of other functions."""
    is_view: bool = False
    """Whether the results are views of the first argument that depend on no strides."""
    puts_piece: bool = False
    """Whether it gives its first argument with a piece, the second, put in (`select_scatter`)."""
    is_pointwise: bool = False
    """Whether each element of the result is computed from that of the operand alone."""


@cache
def callee_named(target: str) -> Callee:
    """Facts about the operator of that name, from its schema and tags."""
    found = None if target.startswith("python.") else resolve(target)
    if not is_overload(found):
        return Callee(None)
    info = op_info(found)
    told_strides = any(argument.name in ("stride", "storage_offset") for argument in info.arguments)
    # PyTorch tags `clone` as pointwise, but not the copy that may convert.
    pointwise = torch.Tag.pointwise in found.tags or found is torch.ops.aten._to_copy.default
    own = found.namespace in ("aten", "prims")
    return Callee(
        found,
        is_view=info.is_view and not told_strides,
        puts_piece=scattered_view(found) is not None,
        is_pointwise=own and pointwise and not (info.writes or info.random or info.is_view),
    )


def callee_of(op: CallOp) -> Callee:
    """Facts about what a call calls."""
    return callee_named(op.target)


def argument(op: CallOp, position: int) -> SSAValue | None:
    """The operand that is a positional argument; None if there is none, or something else."""
    args = op.args.data
    tree = args[position] if position < len(args) else None
    return op.operands[tree.index.data] if isinstance(tree, OperandAttr) else None


def is_view(op: object) -> bool:
    """Whether an operation is a call of a view operator whose base is operand 0, a tensor."""
    if not isinstance(op, CallOp) or not callee_of(op).is_view:
        return False
    base = argument(op, 0)
    return base is not None and base is op.operands[0] and is_tensor(base.type)


def path_to(value: SSAValue, limit: int) -> tuple[SSAValue, list[CallOp]]:
    """What a value is a view of, and the views that lead from there to it; at most `limit` of them are followed."""
    path: list[CallOp] = []
    while len(path) < limit and isinstance(op := value.owner, CallOp) and is_view(op):
        path.append(op)
        value = op.operands[0]
    return value, path[::-1]


@lru_cache(maxsize=4096)
def row_major_window(kind: Attribute) -> BufferType:
    """The window of a row-major tensor of the shape and element type of `kind`, a tensor type."""
    if not is_tensor(kind):
        raise TypeError(f"{kind} is not a tensor type")
    layout = kind.encoding if isinstance(kind.encoding, LayoutAttr) else None
    if layout is None or layout.strides == _NONE:
        return whole_window(kind)
    return BufferType(kind.shape, kind.element_type, layout.sizes, _NONE, _NONE, layout.device)


@dataclass(frozen=True)
class Scatter:
    """A call that gives `old` with `piece` put in."""

    old: SSAValue
    piece: SSAValue
    window: BufferType | None
    """Where the piece goes in a row-major tensor of the shape of the old value; None if that is not known."""


class ValueViews:
    """Asks PyTorch what the view operators in a function show."""

    def __init__(self, function: FuncOp) -> None:
        self._windows = ViewWindows(function)
        self._scatters: dict[Operation, Scatter | None] = {}

    def windows(self, op: CallOp, base: BufferType) -> Windows:
        """The windows of the results of a view if its base is `base`; nothing if they are not known."""
        overload = callee_of(op).overload
        if overload is None:
            return _NO_RESULT
        found = self.of(overload, op.args, op.kwargs, base, op.operands[1:])
        return found if len(found) == len(op.results) else _NO_RESULT

    def of(
        self,
        overload: Overload,
        args: ArrayAttr[Attribute],
        kwargs: DictionaryAttr | None,
        base: BufferType,
        integers: Sequence[SSAValue] = (),
    ) -> Windows:
        """The windows that an operator gives of `base`, operand 0; nothing if they are not known."""
        return self._windows.of(overload, args, kwargs, base, integers) or _NO_RESULT

    def scatter(self, value: SSAValue) -> Scatter | None:
        """The scatter that gives a value; None if something else does."""
        op = value.owner
        if not isinstance(op, CallOp) or not callee_of(op).puts_piece:
            return None
        if op not in self._scatters:
            self._scatters[op] = self._scatter(op)
        return self._scatters[op]

    def _scatter(self, op: CallOp) -> Scatter | None:
        update = next(iter(updates_of(op)), None)
        if update is None or update.view is None or update.piece is None:
            return None
        piece = op.operands[update.piece]
        if element_type_of(piece.type) != element_type_of(op.results[0].type):
            return None  # the elements that are put in are conversions
        args, integers = view_arguments(update)
        windows = self.of(update.view, args, None, row_major_window(op.results[0].type), integers)
        return Scatter(update.old, piece, windows[0] if len(windows) == 1 else None)

    def along(self, path: Sequence[CallOp], base: BufferType | None) -> Windows:
        """The windows of the results of the last of several views, each of the one before, the first of `base`."""
        for op, following in zip(path, [*path[1:], None], strict=True):
            windows = _NO_RESULT if base is None else self.windows(op, base)
            if following is None or not windows:
                return windows
            base = windows[op.results.index(following.operands[0])]
        return _NO_RESULT


def keeps_order(window: BufferType | None, base: BufferType) -> bool:
    """Whether a window onto a row-major `base` has all of its elements in their order."""
    if window is None or window.element_type != base.element_type:
        return False
    ours, theirs = _count(window), _count(base)
    whole = BufferType(window.shape, window.element_type, window.sizes, _NONE, _NONE, window.device)
    return ours is not None and theirs is not None and equal(ours, theirs) and same_window(window, whole)


def _count(window: BufferType) -> Number | None:
    """How many elements a window has; None if that is not known."""
    total: Number = 1
    for size in sizes_of(window):
        number = size if isinstance(size, int) else parse(size)
        if number is None:
            return None
        total = total * number
    return total
