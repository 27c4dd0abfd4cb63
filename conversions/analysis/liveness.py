"""Until when each storage of a function is needed.

A value is needed as long as its storage is, through whatever alias: a view, or the buffer that a call returns. One
sweep from the return to the top finds the last use of every storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.analysis.aliases import AliasSets, Storage
from vllm_ir.dialects.vllm_ir.function import FuncOp


class Liveness:
    """The last uses of the storages and integers of a function, as it is when this is made.

    `aliases` are those of the same function, with all its operations placed.
    """

    def __init__(self, function: FuncOp, aliases: AliasSets) -> None:
        self.function = function
        self.aliases = aliases
        returned = {self._key(value) for value in function.terminator.operands}
        self.live_out: Mapping[Storage, Sequence[str]] = {
            storage: reasons
            for storage in aliases.storages
            if (reasons := _needed_behind(storage, storage in returned))
        }
        """Storages whose contents matter behind the return, in the order of the program, and why."""
        self._last: dict[Storage | SSAValue, Operation] = {}
        self._dying: dict[Operation, list[Storage]] = {}
        for op in reversed(function.block.ops):
            self._visit(op)

    def last_use(self, value: SSAValue) -> Operation | None:
        """The last operation that needs `value` or anything else in its storage; None if there is no use at all.

        What is live out is needed longer than that.
        """
        return self._last.get(self._key(value))

    def dies_at(self, op: Operation) -> Sequence[Storage]:
        """Storages that nobody needs behind `op`: it is their last use, or makes them for nothing."""
        return self._dying.get(op, ())

    def _key(self, value: SSAValue) -> Storage | SSAValue:
        place = self.aliases.places.get(value)
        return value if place is None else place.storage

    def _visit(self, op: Operation) -> None:
        # Results are listed for memory that is made and never used.
        for value in (*op.operands, *op.results):
            key = self._key(value)
            if key not in self._last:
                self._last[key] = op
                if isinstance(key, Storage) and key not in self.live_out:
                    self._dying.setdefault(op, []).append(key)


def _needed_behind(storage: Storage, returned: bool) -> Sequence[str]:
    """Why the contents of a storage matter behind the return."""
    facts = (
        ("the caller's", storage.is_argument and not storage.donated),
        ("mutated", storage.mutated),
        ("constant", storage.is_constant),
        ("returned", returned),
    )
    return [name for name, holds in facts if holds]


__all__ = ["Liveness"]
