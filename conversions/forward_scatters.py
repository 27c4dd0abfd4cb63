"""`forward-scatters`: who reads the piece that a scatter has just put in gets the piece.

And who reads only what scatters have left alone reads the value before them. So after `split`, a change of some pieces,
a scatter of each and another `split`, the second one gives the changed pieces and those of the first. Which elements a
view shows and a scatter replaces is told by windows (`regions.py`), whatever operators, dimensions and sizes they come
from. What reads a piece in part, or more than one, stays as it is, and so does everybody else who reads the value with
the pieces in it. Scatters that nobody reads any more are left for `dce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, OpResult, SSAValue, Use

from vllm_ir.conversions.analysis.regions import may_overlap, same_window
from vllm_ir.conversions.analysis.windows import whole_window
from vllm_ir.conversions.donations import drop_invalid_donations
from vllm_ir.conversions.functionalize.views import row_major
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.conversions.value_views import ValueViews, callee_of, is_view, path_to, row_major_window
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects, donated_indices
from vllm_ir.dialects.vllm_ir.memory import AllocOp, RelayoutOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, sizes_of
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.types import is_tensor

_LONGEST_PATH = 8
"""Views between a scatter and a reader that are followed."""
_OLDEST = 256
"""Scatters, one of the value of the next, that are looked at for one reader: a pass over a chain stays linear."""


@dataclass(frozen=True)
class ForwardScattersPass(LimitedPass):
    """Give readers of scattered values the pieces, or older values, that they read.

    A piece may have other strides than the part of the whole value that it stands for, where nothing asks for strides.
    Some kernels of eager mode round in another way then, by how a loop over elements is cut. With `exact`, only values
    of the same type are given, and results have the same bits.

    With `limit`, that many results of views are given, in program order.
    """

    name = "forward-scatters"

    exact: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every functional function of the module; those that are about memory are left alone."""
        rewrites = self.start()
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None:
                _Forwarder(function, rewrites, exact=self.exact).run()


class _Forwarder:
    def __init__(self, function: FuncOp, rewrites: Rewrites, *, exact: bool) -> None:
        self.function = function
        self.exact = exact
        self.rewrites = rewrites
        self.views = ValueViews(function)

    def run(self) -> None:
        done = self.rewrites.done
        for op in list(self.function.block.ops):
            if op.parent is not None and isinstance(op, CallOp) and is_view(op) and op.results:
                self._read(op)
        if self.rewrites.done > done:
            drop_invalid_donations(self.function)

    def _read(self, op: CallOp) -> None:
        """Give the results of a view the values that they read."""
        root, path = path_to(op.results[0], _LONGEST_PATH)
        if self.views.scatter(root) is None:
            return
        done, again = self.rewrites.done, dict[SSAValue, CallOp]()
        for result, window in zip(op.results, self.views.along(path, row_major_window(root.type)), strict=False):
            if window is None or result.first_use is None:
                continue
            source, is_piece = self._source(root, window)
            if source is None:
                continue
            if is_piece and self._may_stand_for(source, result):
                if self.rewrites.take(op, f"is {_called(source)}, which was put in there"):
                    self._hand_on(result, source)
            elif not is_piece and len(path) == 1 and self.rewrites.take(op, f"reads {_called(source)}"):
                if source not in again:
                    again[source] = self._again(op, source, [other.type for other in op.results])
                result.replace_all_uses_with(again[source].results[result.index])
        if self.rewrites.done > done and all(result.first_use is None for result in op.results):
            _erase(op)

    def _may_stand_for(self, piece: SSAValue, result: SSAValue) -> bool:
        if self.exact:
            return piece.type == result.type
        return sizes_of(piece.type) == sizes_of(result.type)

    def _source(self, value: SSAValue, window: BufferType) -> tuple[SSAValue | None, bool]:
        """The piece that was put in just at `window`, or the value in front of all scatters, if none goes there.

        None if neither is sure; and whether it is a piece.
        """
        for _ in range(_OLDEST):
            scatter = self.views.scatter(value)
            if scatter is None:
                return value, False
            if scatter.window is None:
                break
            if may_overlap(window, scatter.window):
                return (scatter.piece if same_window(window, scatter.window) else None), True
            if scatter.old.type != value.type:
                break  # views of it have other strides
            value = scatter.old
        return None, False

    def _again(self, op: CallOp, base: SSAValue, kinds: Sequence[Attribute]) -> CallOp:
        """The same view of another base, with results of these types."""
        view = CallOp.create(
            operands=[base, *op.operands[1:]],
            result_types=kinds,
            properties=op.properties,
            attributes=op.attributes,
            location=op.location,
        )
        for new, old in zip(view.results, op.results, strict=True):
            new.name_hint = old.name_hint
        self.function.block.insert_op_before(view, op)
        return view

    # Values of other strides

    def _hand_on(self, old: OpResult, new: SSAValue) -> None:
        """Let the users of a value use one with the same elements, in the strides that they have to see."""
        pending: list[tuple[SSAValue, SSAValue]] = [(old, new)]
        dead: list[Operation] = []
        while pending:
            value, new = pending.pop()
            if value.type == new.type:
                value.replace_all_uses_with(new)
                continue
            laid_out: SSAValue | None = None
            for use in list(value.uses):
                user = use.operation
                if _takes_any_strides(use):
                    user.operands[use.index] = new
                elif (view := self._view_of(use, new)) is not None:
                    pending.extend(zip(user.results, view.results, strict=True))
                    dead.append(user)
                else:
                    laid_out = laid_out or self._relayout(value, new)
                    user.operands[use.index] = laid_out
        for op in reversed(dead):
            _erase(op)

    def _view_of(self, use: Use, base: SSAValue) -> CallOp | None:
        """What the user of a value is of `base`, which has other strides, if it is a view; None if it is none."""
        op = use.operation
        if not isinstance(op, CallOp) or use.index != 0 or not is_view(op) or not is_tensor(base.type):
            return None
        kinds: list[Attribute] = []
        for result, window in zip(op.results, self.views.windows(op, whole_window(base.type)), strict=False):
            if not is_tensor(result.type) or (window is not None and sizes_of(window) != sizes_of(result.type)):
                return None
            kinds.append(row_major(result.type) if window is None else window.tensor)
        return self._again(op, base, kinds) if len(kinds) == len(op.results) else None

    def _relayout(self, old: SSAValue, new: SSAValue) -> SSAValue:
        """`new`, in the strides of `old`, in front of all that uses it."""
        op = old.owner
        if not isinstance(op, Operation):
            raise TypeError(f"{old} is an argument, which no view gives")
        relayout = RelayoutOp.create(operands=[new], result_types=[old.type])
        relayout.location = op.location
        relayout.result.name_hint = old.name_hint
        self.function.block.insert_op_before(relayout, op)
        return relayout.result


def _takes_any_strides(use: Use) -> bool:
    """Whether it makes no difference to the user of a value which strides the value has."""
    op = use.operation
    if isinstance(op, CallOp):
        overload = callee_of(op).overload
        if overload is None or use.index in op.update_indices:
            return False
        info = op_info(overload)
        return not info.is_view and not info.layout_sensitive
    if op.has_trait(OperandEffects):
        return use.index not in donated_indices(op)
    return isinstance(op, WriteOp | AllocOp | RelayoutOp)


def _called(value: SSAValue) -> str:
    return f"%{value.name_hint or '?'}"


def _erase(op: Operation) -> None:
    op.detach()
    op.erase()
