"""Who would notice that memory is overwritten: later uses of older values.

An update of window W of a storage is noticed by every value in that storage which was there before, overlaps W, and is
used later, unless each such use ignores what was overwritten: it puts a piece over all of it, looks at other parts, or
only passes it on to a value of which the same is true.
This is the read-after-write conflict of one-shot bufferization (Springer, MLIR), on windows instead of whole tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue, Use

from vllm_ir.conversions.analysis.aliases import AliasSets, Place, viewed_overload
from vllm_ir.conversions.analysis.regions import same_window
from vllm_ir.conversions.eliminate_clones.updates import Update, called_overload, piece_window, updates_of
from vllm_ir.dialects.vllm_ir.memory import ReadOp, ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.schemas import op_info


@dataclass(frozen=True)
class Conflict:
    """A use that would see overwritten memory, and the value in it."""

    value: SSAValue
    user: Operation


class Conflicts:
    """Finds conflicts in a function whose operations have known positions."""

    def __init__(
        self,
        aliases: AliasSets,
        position: Mapping[Operation, int],
        copied: Callable[[Operation], SSAValue | None],
        ignored: Callable[[Operation], bool],
    ) -> None:
        """`copied` gives the operand that an operation passes on; uses by `ignored` operations do not count."""
        self.aliases = aliases
        self.position = position
        self.copied = copied
        self.ignored = ignored

    def last_use(self, value: SSAValue) -> int:
        """Position of the last use, -1 without any."""
        return max((self.position[use.operation] for use in value.uses), default=-1)

    def of(self, value: SSAValue, place: Place, written: Place, at: int) -> Iterator[Conflict]:
        """Uses of `value`, which is at `place`, behind position `at` that look at what was `written` there."""
        for use in value.uses:
            if self.position[use.operation] > at and not self.ignored(use.operation):
                yield from self._use(use, value, place, written, at)

    def _use(self, use: Use, value: SSAValue, place: Place, written: Place, at: int) -> Iterator[Conflict]:
        op = use.operation
        if isinstance(value.type, BufferType) and not isinstance(op, ReadOp | ViewOp):
            return  # memory itself, which is handed over with what it holds
        if isinstance(op, ReadOp) or self.copied(op) is value:
            yield from self.of(op.results[0], place, written, at)
        elif use.index == 0 and viewed_overload(op) is not None:
            yield from self._views(op, value, place, written, at)
        elif (update := self._scatter(op)) is not None and self._carries(use, update, place):
            # What was written is in the result as well, unless the piece replaces it.
            if not self._replaces(update, use, place, written):
                result = place if use.index == update.index else self.aliases.places[update.old]
                for conflict in self.of(op.results[0], result, written, at):
                    yield Conflict(value, conflict.user)  # the result may depend on the update, the value does not
        elif not self._only_measures(op):
            yield Conflict(value, op)

    def _views(self, op: Operation, value: SSAValue, place: Place, written: Place, at: int) -> Iterator[Conflict]:
        for index, result in enumerate(op.results):
            viewed = self.aliases.viewed(op, index, place)
            if viewed is None:
                yield Conflict(value, op)  # a copy in the end
            elif viewed.overlaps(written):
                yield from self.of(result, viewed, written, at)

    def _only_measures(self, op: Operation) -> bool:
        overload = called_overload(op)
        return overload is not None and op_info(overload).metadata_only

    def _scatter(self, op: Operation) -> Update | None:
        """The update of an operation that puts a piece into a base and does nothing else."""
        return next((update for update in updates_of(op) if update.view is not None), None)

    def _carries(self, use: Use, update: Update, place: Place) -> bool:
        """Whether a scatter leaves a value at `place` where it is: as the base, or as a piece that is there already."""
        if use.index == update.index:
            return update.piece != update.index
        base = self.aliases.places.get(update.old)
        if use.index != update.piece or base is None or base.storage is not place.storage or place.window is None:
            return False
        piece = piece_window(update, base, self.aliases)
        return piece is not None and same_window(piece, place.window)

    def _replaces(self, update: Update, use: Use, place: Place, written: Place) -> bool:
        """Whether a scatter into a base at `place` puts a piece over all that was written."""
        if use.index != update.index:
            return False
        piece = piece_window(update, place, self.aliases)
        return piece is not None and written.is_within(piece)
