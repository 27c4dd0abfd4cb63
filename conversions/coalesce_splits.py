"""`coalesce-splits`: slices of a value that together are all of it become the results of one `split_with_sizes`.

So do `split`, `chunk` and further slices that give the same pieces. What a piece is comes from its window and not from
the arguments that asked for it: along which dimension it lies, where it starts, how long it is. Pieces of one split
follow each other without gaps or overlaps from one end of the dimension to the other; anything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult, SSAValue

from vllm_ir.conversions.analysis.polynomials import Number, Polynomial, divide, equal, parse
from vllm_ir.conversions.donations import drop_invalid_donations
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.conversions.value_views import ValueViews, is_view, row_major_window
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, shape_of, sizes_of, strides_of
from vllm_ir.frontends.fx.build import CallBuilder

aten = torch.ops.aten


@dataclass(frozen=True)
class CoalesceSplitsPass(LimitedPass):
    """Make one split of the calls that give all pieces of a value.

    With `limit`, that many splits take the place of other calls, in the order of the values that are split.
    """

    name = "coalesce-splits"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every functional function of the module; those that are about memory are left alone."""
        rewrites = self.start()
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None:
                _Coalescer(function, rewrites).run()


@dataclass(frozen=True)
class Piece:
    """Elements `start` to before `end` along a dimension; numbers or canonical forms of symbolic ones."""

    dimension: int
    start: object
    end: object


@dataclass(frozen=True, eq=False)
class Cut:
    """A call that gives pieces of a value along one dimension, none of them empty."""

    op: CallOp
    pieces: tuple[Piece, ...]


class _Coalescer:
    def __init__(self, function: FuncOp, rewrites: Rewrites) -> None:
        self.function = function
        self.rewrites = rewrites
        self.views = ValueViews(function)

    def run(self) -> None:
        done = self.rewrites.done
        candidates: dict[SSAValue, list[CallOp]] = {}
        for op in self.function.block.ops:
            if is_view(op) and isinstance(op, CallOp) and op.results:
                base = op.operands[0]
                if len(shape_of(base.type)) == len(shape_of(op.results[0].type)):
                    candidates.setdefault(base, []).append(op)
        for base, calls in candidates.items():
            if len(calls) > 1:
                self._visit(base, calls)
        if self.rewrites.done > done:
            drop_invalid_donations(self.function)

    def _visit(self, base: SSAValue, calls: Sequence[CallOp]) -> None:
        """Coalesce the calls that cut `base`, for each dimension apart."""
        whole = row_major_window(base.type)
        by_dimension: dict[int, list[Cut]] = {}
        for op in calls:
            pieces = [_piece(window, whole) for window in self.views.windows(op, whole)]
            found = tuple(piece for piece in pieces if piece is not None)
            dimensions = {piece.dimension for piece in found}
            if len(found) == len(op.results) and len(dimensions) == 1:
                by_dimension.setdefault(dimensions.pop(), []).append(Cut(op, found))
        for dimension, cuts in by_dimension.items():
            self._coalesce(base, cuts, sizes_of(whole)[dimension])

    def _coalesce(self, base: SSAValue, cuts: Sequence[Cut], size: int | str) -> None:
        """Coalesce the cuts along one dimension of that size: first what gives pieces of a split, then the rest."""
        remaining = list(cuts)
        for split in cuts:
            if split not in remaining or _in_order(split.pieces, size) != split.pieces:
                continue
            members = [cut for cut in remaining if set(cut.pieces) <= set(split.pieces)]
            if len(members) > 1 and self._merge(base, split.pieces, members):
                remaining = [cut for cut in remaining if cut not in members]
        pieces = _in_order({piece for cut in remaining for piece in cut.pieces}, size)
        if len(remaining) > 1 and pieces is not None:
            self._merge(base, pieces, remaining)

    def _merge(self, base: SSAValue, pieces: Sequence[Piece], cuts: Sequence[Cut]) -> bool:
        """Let the results of one split of a value be those of several cuts; whether that is possible."""
        shown: dict[Piece, OpResult] = {}
        for cut in cuts:
            for piece, result in zip(cut.pieces, cut.op.results, strict=True):
                if shown.setdefault(piece, result).type != result.type:
                    return False  # the same elements with other strides
        first = cuts[0]
        is_static = all(isinstance(piece.end, int) for piece in pieces)
        is_there = first.pieces == pieces and (not is_static or first.op.target == str(aten.split_with_sizes.default))
        if not is_there and not is_static:
            return False  # sizes that have to be computed may not be there yet
        if not self.rewrites.take(first.op, f"gives its pieces by one split, as do {len(cuts) - 1} others"):
            return False
        values = [shown[piece] for piece in pieces]
        results = first.op.results if is_there else self._split(first.op, base, values, pieces[0].dimension)
        by_piece = dict(zip(pieces, results, strict=True))
        for cut in cuts[is_there:]:
            for piece, old in zip(cut.pieces, cut.op.results, strict=True):
                old.replace_all_uses_with(by_piece[piece])
            cut.op.detach()
            cut.op.erase()
        return True

    def _split(self, place: CallOp, base: SSAValue, shown: Sequence[OpResult], dimension: int) -> Sequence[OpResult]:
        """A split of `base` into what these values show, in front of the first call that it stands for."""
        b = CallBuilder(lambda new: self.function.block.insert_op_before(new, place))
        b.at(place)
        sizes = [shape_of(value.type)[dimension] for value in shown]
        split = b.call(aten.split_with_sizes.default, [base, sizes, dimension], [value.type for value in shown])
        for new, old in zip(split.results, shown, strict=True):
            new.name_hint = old.name_hint
        return split.results


def _in_order(pieces: Iterable[Piece], size: int | str) -> tuple[Piece, ...] | None:
    """Pieces from one end of a dimension to the other, each where the one before ends; None if they are not so."""
    by_start = {piece.start: piece for piece in pieces}
    extent = _number(size)
    end, found = _canonical(0), list[Piece]()
    while (piece := by_start.pop(end, None)) is not None:
        found.append(piece)
        end = piece.end
    complete = extent is not None and end == _canonical(extent) and not by_start
    return tuple(found) if complete and len(found) > 1 and len(found) == len(set(pieces)) else None


def _piece(window: BufferType | None, whole: BufferType) -> Piece | None:
    """The piece of a row-major tensor that a window is, with unit steps; None if it is no piece, or empty."""
    if window is None or window.element_type != whole.element_type or len(shape_of(window)) != len(shape_of(whole)):
        return None
    sizes = sizes_of(window)
    differ = [d for d, (size, full) in enumerate(zip(sizes, sizes_of(whole), strict=True)) if size != full]
    steps, own_steps = _strides(whole), _strides(window)
    size, offset = _number(sizes[differ[0]]) if len(differ) == 1 else None, _number(offset_of(window))
    if steps is None or own_steps is None or size is None or offset is None or size == 0:
        return None
    if not all(equal(one, other) for one, other in zip(steps, own_steps, strict=True)):
        return None
    start, rest = divide(offset, steps[differ[0]])
    return Piece(differ[0], _canonical(start), _canonical(start + size)) if equal(rest, 0) else None


def _number(value: int | str) -> Number | None:
    return value if isinstance(value, int) else parse(value)


def _strides(window: BufferType) -> list[Number] | None:
    """Strides as numbers; row-major ones where the type states none."""
    stated = strides_of(window)
    if stated is None:
        steps: list[Number] = [1]
        for size in reversed(sizes_of(window)[1:]):
            if (number := _number(size)) is None:
                return None
            steps.insert(0, steps[0] * number)
        return steps
    numbers = [number for step in stated if (number := _number(step)) is not None]
    return numbers if len(numbers) == len(stated) else None


def _canonical(number: Number) -> object:
    """A form of a number that equal numbers have in common: an integer if it is one."""
    if isinstance(number, Polynomial):
        return frozenset(number.terms.items()) if number.terms.keys() - {()} else number.terms.get((), 0)
    return number
