"""`eliminate-no-ops`: calls that give a value that is there already become that value.

On values, behind `functionalize`: views that show all of their base in its order (slices of the whole, an `expand` to
the same sizes, a permutation and its inverse), scatters of a piece as large as the base, pointwise calls that leave
every element as it is, copies. Chains of reshapes become the last one. A value gives way only to one of the same type,
strides included, so that nobody who looks at strides sees others. A call that makes new memory stays if its result is
returned: a returned tensor is memory of its own, so something has to make it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from xdsl.context import Context
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, FloatAttr, IntegerAttr, IntegerType, ModuleOp, NoneAttr
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.analysis.identities import keeps_elements
from vllm_ir.conversions.analysis.regions import same_window
from vllm_ir.conversions.analysis.windows import whole_window
from vllm_ir.conversions.donations import drop_invalid_donations
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.conversions.value_views import (
    Scatter,
    ValueViews,
    argument,
    callee_of,
    is_view,
    keeps_order,
    row_major_window,
)
from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import REASON, CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp, ReturnOp
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.dialects.vllm_ir.types import BufferType, LayoutAttr, shape_of
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.torch_objects import Overload
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.fx.values import integer, operand_reference

aten = torch.ops.aten

_LONGEST_PATH = 8
"""Views that are followed back from one to find the value that it shows."""


@dataclass(frozen=True)
class EliminateNoOpsPass(LimitedPass):
    """Put values that are there already in the place of calls that give them again.

    With `limit`, that many calls are replaced, or made to look through a reshape, in program order.
    """

    name = "eliminate-no-ops"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every functional function of the module; those that are about memory are left alone."""
        rewrites = self.start()
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None:
                _Eliminator(function, rewrites).run()


class _Eliminator:
    def __init__(self, function: FuncOp, rewrites: Rewrites) -> None:
        self.function = function
        self.rewrites = rewrites
        self.views = ValueViews(function)
        self.kept: dict[object, bool] = {}
        """Whether pointwise calls keep elements, by what they are told."""

    def run(self) -> None:
        done = self.rewrites.done
        for op in list(self.function.block.ops):
            if isinstance(op, CallOp):
                self._visit(op)
            elif isinstance(op, RelayoutOp) and op.value.type == op.result.type:
                self._replace(op, op.value)
        if self.rewrites.done > done:
            drop_invalid_donations(self.function)

    def _visit(self, op: CallOp) -> None:
        callee = callee_of(op)
        if callee.is_view:
            if len(op.results) == 1 and is_view(op) and not self._shows_older(op):
                self._look_through(op)
        elif callee.puts_piece:
            self._put(op)
        elif callee.is_pointwise and self._keeps_elements(op, callee.overload) and not _is_returned(op):
            self._replace(op, op.operands[0])

    def _replace(self, op: Operation, value: SSAValue) -> None:
        """Put a value of the same type in the place of the only result of `op`."""
        if self.rewrites.take(op, "gives what is there already"):
            op.results[0].replace_all_uses_with(value)
            _erase(op)

    # Views

    def _shows_older(self, op: CallOp) -> bool:
        """Replace a view by the value that it shows all of, in the same order; whether there is one."""
        kind, path = op.results[0].type, [op]
        while len(path) <= _LONGEST_PATH:
            older = path[0].operands[0]
            if older.type == kind and self._shows_all(path, older):
                self._replace(op, older)
                return True
            owner = older.owner
            if not isinstance(owner, CallOp) or not is_view(owner):
                return False
            path.insert(0, owner)
        return False

    def _shows_all(self, path: list[CallOp], base: SSAValue) -> bool:
        """Whether the last of several views shows all elements of the base of the first, in their order."""
        whole = row_major_window(base.type)
        windows = self.views.along(path, whole)
        return bool(windows) and keeps_order(windows[0], whole)

    def _look_through(self, op: CallOp) -> None:
        """Let the second of two reshapes work on what the first one does."""
        inner = op.operands[0].owner
        if not isinstance(inner, CallOp) or not is_view(inner):
            return
        if not _may_reshape(op) or not _may_reshape(inner):
            return
        if not self._shows_all([op], op.operands[0]) or not self._shows_all([inner, op], inner.operands[0]):
            return
        source, kind = inner.operands[0], op.results[0].type
        windows = self.views.windows(op, _window(source))
        if windows and _gives(windows[0], kind):
            if self.rewrites.take(op, "looks through a reshape"):
                op.operands[0] = source
                _erase_unused([inner])
        elif self._can_reshape(source, kind) and self.rewrites.take(op, "looks through a reshape"):
            self._reshape(op, source)

    def _can_reshape(self, value: SSAValue, kind: Attribute) -> bool:
        """Whether `aten.reshape` to static sizes makes one of type `kind`, strides included, of a value."""
        if DYNAMIC_INDEX in shape_of(kind):
            return False
        args = ArrayAttr([operand_reference(0), ArrayAttr([integer(size) for size in shape_of(kind)])])
        windows = self.views.of(aten.reshape.default, args, None, _window(value))
        return len(windows) == 1 and _gives(windows[0], kind)

    def _reshape(self, op: Operation, value: SSAValue) -> None:
        """Put a reshape of `value` in the place of `op`."""
        b = CallBuilder(lambda new: self.function.block.insert_op_before(new, op))
        b.at(op)
        kind = op.results[0].type
        op.results[0].replace_all_uses_with(b.value(aten.reshape.default, [value, list(shape_of(kind))], kind))
        _erase(op)

    # Scatters

    def _put(self, op: CallOp) -> None:
        """Replace a scatter whose piece takes the place of everything, or is what is there."""
        kind, piece = op.results[0].type, argument(op, 1)
        if piece is None or not (_is_view_of(piece, op.operands[0]) or _may_be_as_large(piece.type, kind)):
            return
        scatter = self.views.scatter(op.results[0])
        if scatter is None or scatter.window is None or _is_returned(op):
            return
        if scatter.old.type == kind and self._is_there(scatter):
            self._replace(op, scatter.old)
        elif keeps_order(scatter.window, row_major_window(kind)):
            if scatter.piece.type == kind:
                self._replace(op, scatter.piece)
            elif self._can_reshape(scatter.piece, kind) and self.rewrites.take(op, "is a reshape of its piece"):
                self._reshape(op, scatter.piece)

    def _is_there(self, scatter: Scatter) -> bool:
        """Whether the piece is a view of the place that it goes to."""
        view = scatter.piece.owner
        if not isinstance(view, CallOp) or not _is_view_of(scatter.piece, scatter.old):
            return False
        windows = self.views.windows(view, row_major_window(scatter.old.type))
        shown = windows[view.results.index(scatter.piece)] if windows else None
        return shown is not None and scatter.window is not None and same_window(shown, scatter.window)

    # Elements

    def _keeps_elements(self, op: CallOp, overload: Overload | None) -> bool:
        """Whether a pointwise call with one operand gives its elements, in a value of the same type."""
        operands = op.operands
        if len(operands) != 1 or overload is None or not is_tensor(kind := op.results[0].type):
            return False
        element, rank = kind.element_type, len(kind.shape.data)
        key = (overload, element, rank, *map(_key, op.arguments()))
        if (known := self.kept.get(key)) is None:
            known = self.kept[key] = keeps_elements(overload, op.args, op.kwargs, element, max(rank, 1))
        return known and operands[0].type == kind and REASON not in op.attributes and op.updates is None


def _key(tree: Attribute) -> object:
    """What equal arguments have in common: hashing most of them as attributes takes longer than all else here."""
    if isinstance(tree, OperandAttr):
        return None
    if isinstance(tree, FloatAttr):
        return repr(tree.value.data)  # tells 0.0 from -0.0, and 1.0 from 1
    if isinstance(tree, IntegerAttr):
        number = cast("IntegerAttr[IntegerType]", tree)
        return number.value.data, number.type.width.data  # tells 1 from True
    return tree


def _is_returned(op: Operation) -> bool:
    return any(isinstance(use.operation, ReturnOp) for use in op.results[0].uses)


def _is_view_of(value: SSAValue, base: SSAValue) -> bool:
    op = value.owner
    return isinstance(op, CallOp) and is_view(op) and op.operands[0] is base


def _may_be_as_large(kind: Attribute, other: Attribute) -> bool:
    """Whether two types may have the same sizes, dimensions of size 1 aside; dynamic ones are not compared."""
    one, two = ([size for size in shape_of(each) if size != 1] for each in (kind, other))
    return one == two


def _window(value: SSAValue) -> BufferType:
    """The window of a value, alone in its memory."""
    if not is_tensor(value.type):
        raise TypeError(f"{value.type} is not a tensor type")
    return whole_window(value.type)


def _gives(window: BufferType | None, kind: Attribute) -> bool:
    """Whether a value in a window has the type `kind`; None stands for row-major new memory."""
    return _is_row_major(kind) if window is None else window.tensor == kind


def _is_row_major(kind: Attribute) -> bool:
    encoding = kind.encoding if is_tensor(kind) else None
    return not isinstance(encoding, LayoutAttr) or isinstance(encoding.strides, NoneAttr)


def _may_reshape(op: CallOp) -> bool:
    """Whether a view may keep the order of all elements: not if row-major elements are no longer so."""
    return len(op.results) == 1 and (not _is_row_major(op.operands[0].type) or _is_row_major(op.results[0].type))


def _erase(op: Operation) -> None:
    """Erase an operation without uses, and what it alone looked at."""
    operands = [operand.owner for operand in op.operands]
    op.detach()
    op.erase()
    _erase_unused(operands)


def _erase_unused(producers: Iterable[object]) -> None:
    """Erase those operations that are views without uses, and in turn what they alone looked at."""
    for op in producers:
        if not isinstance(op, CallOp) or op.parent is None or not is_view(op):
            continue
        if all(result.first_use is None for result in op.results):
            _erase(op)
