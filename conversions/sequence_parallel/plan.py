"""Which sums are scattered, which operations work on pieces, and where pieces become whole again.

From each sum (all_reduce) on, operations that go row by row may work on pieces; those behind which less would have to
be gathered than in front of them do. Sums that share pieces, as the layers of a model do through the residual, are one
region: it is rewritten as a whole or not at all, so that it moves no more bytes than before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, Collective, ring_share, row_bytes
from vllm_ir.conversions.errors import describe
from vllm_ir.conversions.sequence_parallel.shards import is_registered, row_operands
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import sizes_of
from vllm_ir.frontends.distributed.group_places import Place
from vllm_ir.frontends.fx.types import is_tensor


@dataclass(frozen=True)
class Rows:
    """What pieces are pieces of."""

    group: str
    place: Place
    sizes: tuple[int | str, ...]
    """All sizes but the last."""
    padded: bool
    """Whether rows have to be added, so that they go into equal pieces."""


@dataclass(frozen=True)
class Sum:
    """An all_reduce whose result may be scattered instead."""

    collective: Collective
    rows: Rows


@dataclass
class Region:
    """Sums and operations that share pieces."""

    sums: list[Sum] = field(default_factory=lambda: [])
    operations: list[Operation] = field(default_factory=lambda: [])
    """Those that work on pieces, in program order."""
    gathered: list[SSAValue] = field(default_factory=lambda: [])
    """Values that something needs whole."""

    def bytes_per_row(self) -> tuple[Fraction, Fraction]:
        """How many bytes a rank sends for each row of the whole, before and behind."""
        before = behind = Fraction()
        for entry in self.sums:
            size, ranks = row_bytes(entry.collective.result.type), entry.rows.place.ranks
            before += size * ring_share(ALL_REDUCE, ranks)
            behind += size * ring_share(REDUCE_SCATTER, ranks)
        ranks = self.sums[0].rows.place.ranks
        behind += sum(row_bytes(value.type) for value in self.gathered) * ring_share(ALL_GATHER, ranks)
        return before, behind


class Plan:
    """Decides for one function."""

    def __init__(self, function: FuncOp, sums: Iterable[Sum], *, extra_bytes: bool) -> None:
        """`sums`: those that may be scattered. `extra_bytes`: also where more bytes are moved than before."""
        self.function = function
        self.extra_bytes = extra_bytes
        self.sums = {entry.collective.result: entry for entry in sums}
        self.pieces: dict[SSAValue, Rows] = {value: entry.rows for value, entry in self.sums.items()}
        self.working: dict[Operation, None] = {}
        """Operations that work on pieces, in program order."""
        self.reasons: dict[Operation, str] = {}
        """Why operations next to pieces do not work on them."""
        self.unused: dict[Operation, str] = {}
        """Why sums are left as they are, by their first operation."""

    def regions(self) -> list[Region]:
        """What is to be rewritten, in program order."""
        for op in self.function.block.ops:
            self._consider(op)
        for op in reversed(list(self.working)):
            if self._is_better_whole(op):
                self._leave(op)
        return [region for region in self._connected() if self._is_worth_it(region)]

    def _consider(self, op: Operation) -> None:
        """Let an operation work on pieces, if it can."""
        known = [value for value in op.operands if value in self.pieces]
        if not known:
            return
        rows = self.pieces[known[0]]
        reason = self._obstacle(op, rows)
        if reason is not None:
            self.reasons[op] = reason
            return
        self.working[op] = None
        self.pieces.update(dict.fromkeys(op.results, rows))

    def _obstacle(self, op: Operation, rows: Rows) -> str | None:
        """Why an operation cannot work on pieces."""
        needed = row_operands(op)
        if needed is None:
            return "does not go row by row"
        for index, value in enumerate(op.operands):
            known = self.pieces.get(value)
            if known is not None and index not in needed:
                return f"needs all rows of %{value.name_hint}"
            if known is not None and known != rows:
                return f"takes pieces of {rows.group!r} and of {known.group!r} that were cut in another way"
            if known is None and index in needed:
                if not is_registered(op):
                    return f"takes %{value.name_hint}, which may be another one on each rank"
                if rows.place.rank is None:
                    return f"needs the rank's rows of %{value.name_hint}, and the module does not say which rank it is"
        shaped = [op.operands[index] for index in needed] + list(op.results)
        if any(leading_sizes(value) != rows.sizes or not row_bytes(value.type) for value in shaped):
            return "has operands or results with other rows"
        return None

    def _is_better_whole(self, op: Operation) -> bool:
        """Whether less has to be gathered in front of an operation than behind it."""
        if any(use.operation in self.working for value in op.results for use in value.uses):
            return False
        if self.extra_bytes and any(value in self.sums for value in op.operands):
            return False
        inputs = {value for value in op.operands if value in self.pieces and not self._is_needed_whole(value)}
        return sum(row_bytes(value.type) for value in inputs) < sum(
            row_bytes(value.type) for value in op.results if self._is_needed_whole(value)
        )

    def _leave(self, op: Operation) -> None:
        allowed = "; extra_bytes=true allows it" if any(value in self.sums for value in op.operands) else ""
        self.reasons[op] = f"would have more to be gathered behind it than in front of it{allowed}"
        del self.working[op]
        for value in op.results:
            del self.pieces[value]

    def _is_needed_whole(self, value: SSAValue) -> bool:
        return any(use.operation not in self.working for use in value.uses)

    def _connected(self) -> list[Region]:
        """Regions: what is connected by pieces."""
        groups: dict[SSAValue, SSAValue] = {}

        def root(value: SSAValue) -> SSAValue:
            while (above := groups.setdefault(value, value)) is not value:
                value = above
            return value

        for op in self.working:
            values = [value for value in (*op.operands, *op.results) if value in self.pieces]
            for value in values:
                groups[root(value)] = root(values[0])
        found: dict[SSAValue, Region] = {}
        for value, entry in self.sums.items():
            found.setdefault(root(value), Region()).sums.append(entry)
        for op in self.working:
            found[root(op.results[0])].operations.append(op)
        for value in self.pieces:
            if self._is_needed_whole(value):
                found[root(value)].gathered.append(value)
        return list(found.values())

    def _is_worth_it(self, region: Region) -> bool:
        """Whether a region is rewritten; notes why not."""
        if any(map(is_registered, region.operations)):
            before, behind = region.bytes_per_row()
            if behind <= before or self.extra_bytes:
                return True
            reason = (
                f"{len(region.sums)} sums would move {_number(behind)} bytes for each row instead of "
                f"{_number(before)}, because {self._users(region.gathered)}; extra_bytes=true allows it"
            )
        else:
            reason = self._users(entry.collective.result for entry in region.sums)
            reason = reason or "no op of the registry that goes row by row comes behind it"
        self.unused.update({entry.collective.op: reason for entry in region.sums})
        return False

    def _users(self, values: Iterable[SSAValue]) -> str:
        """What keeps values whole."""
        users = [(value, use.operation) for value in values for use in value.uses if use.operation not in self.working]
        texts = [
            f"%{value.name_hint} is used by {describe(user)}, which {self.reasons.get(user, 'does not go row by row')}"
            for value, user in users
        ]
        return "; ".join(dict.fromkeys(texts))


def leading_sizes(value: SSAValue) -> tuple[int | str, ...] | None:
    """All sizes of a tensor but the last; None for anything else."""
    return sizes_of(value.type)[:-1] if is_tensor(value.type) else None


def _number(bytes: Fraction) -> str:
    return str(bytes) if bytes.denominator == 1 else f"{float(bytes):.1f}"


__all__ = ["Plan", "Region", "Rows", "Sum", "leading_sizes"]
