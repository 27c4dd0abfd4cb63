"""`sequence-parallel`: between collectives, each rank computes its own rows alone.

`norm(all_reduce(x))` is the same on all ranks, and all of them compute it. `all_gather(norm(reduce_scatter(x)))` has
the same rows and moves as many bytes, but each rank normalises 1/n of them; the residual between layers stays cut.
Fused ops that begin with a sum are taken apart where it is scattered (`fused_sums.py`).
What works on pieces says so (`shards.py`), and it is checked at the end (`check_shards.py`). Which sums were scattered
stays in the module's `vllm_ir.sharded_sums` attribute, which were not and why in `vllm_ir.unsharded_sums`, and how
many bytes the collectives move before and behind in `vllm_ir.collective_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.analysis.polynomials import Number, divide, equal, not_greater, parse
from vllm_ir.conversions.collectives import ALL_REDUCE, Collective, collective_bytes, collective_of, row_bytes
from vllm_ir.conversions.donations import drop_invalid_donations
from vllm_ir.conversions.errors import named_place
from vllm_ir.conversions.notes import text_array
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.conversions.sequence_parallel.check_shards import check_shards
from vllm_ir.conversions.sequence_parallel.fused_sums import fused_sums, take_apart
from vllm_ir.conversions.sequence_parallel.plan import Plan, Region, Rows, Sum, leading_sizes
from vllm_ir.conversions.sequence_parallel.rewrite import Rewriter
from vllm_ir.conversions.trace import Examples
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.distributed.group_places import GROUP_PLACES, group_places
from vllm_ir.frontends.fx.errors import FxImportError

SHARDED_SUMS = "vllm_ir.sharded_sums"
UNSHARDED_SUMS = "vllm_ir.unsharded_sums"
COLLECTIVE_BYTES = "vllm_ir.collective_bytes"


@dataclass(frozen=True)
class SequenceParallelPass(LimitedPass):
    """Scatter sums over ranks in front of norms, and gather behind them.

    `group`: only sums over that group. `min_tokens`: only of at least so many rows. `pad`: rows that do not go into
    equal pieces get rows of zeros behind them; without it such sums are left. `extra_bytes`: also where more bytes are
    moved than before, as where the residual is needed whole. `require`: how many sums have to be scattered. With
    `limit`, that many regions (`plan.py`) are rewritten.
    """

    name = "sequence-parallel"

    group: str | None = None
    min_tokens: int = 1
    pad: bool = False
    extra_bytes: bool = False
    require: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every functional function of the module.

        Raises:
            PassFailedException: not as many sums were scattered as `require` says.
            VerifyException: what the module says about groups is malformed.
        """
        before = _bytes(op)
        sharding = _Sharding(op, self, self.start())
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None:
                sharding.run(function)
        if sharding.sharded:
            check_shards(op)
            op.attributes[COLLECTIVE_BYTES] = DictionaryAttr({"before": before, "after": _bytes(op)})
        sharding.note()
        if self.require is not None and len(sharding.sharded) != self.require:
            raise PassFailedException(
                f"sequence-parallel: {len(sharding.sharded)} sums were scattered, {self.require} required; "
                f"{'; '.join(sharding.unsharded)}"
            )


class _Sharding:
    def __init__(self, module: ModuleOp, options: SequenceParallelPass, rewrites: Rewrites) -> None:
        self.module = module
        self.options = options
        self.rewrites = rewrites
        self.places = group_places(module)
        self.examples = Examples()
        self.rewriter = Rewriter(self.examples)
        self.sharded: list[str] = []
        self.unsharded: list[str] = []
        self.found = False
        """Whether there are sums at all."""

    def run(self, function: FuncOp) -> None:
        self._take_apart(function)
        plan, left = self._plan(function)
        done = self.rewrites.done
        for region in plan.regions():
            self._rewrite(region)
        self._leave({**left, **plan.unused})
        if self.rewrites.done > done:
            drop_invalid_donations(function)

    def _take_apart(self, function: FuncOp) -> None:
        """Take those fused ops apart whose sums will be scattered; the others stay as they are.

        Which these are is found out on a copy, where all of them are taken apart.
        """
        fused = list(fused_sums(function))
        if not fused:
            return
        trial = function.clone()
        sums = [take_apart(op, self.examples) for op in list(fused_sums(trial))]
        plan, left = self._plan(trial)
        regions = [region for number, region in enumerate(plan.regions(), 1) if self.rewrites.has(number)]
        scattered = {entry.collective.op for region in regions for entry in region.sums}
        reasons = {**left, **plan.unused}
        for op, part in zip(fused, sums, strict=True):
            if part in scattered:
                take_apart(op, self.examples)
            elif part in reasons:
                self._leave({op: reasons[part]})

    def _plan(self, function: FuncOp) -> tuple[Plan, dict[Operation, str]]:
        """What may be done in a function, and why sums cannot be scattered whatever is behind them."""
        left: dict[Operation, str] = {}
        sums = list(self._sums(function, left))
        return Plan(function, sums, extra_bytes=self.options.extra_bytes), left

    def _leave(self, reasons: Mapping[Operation, str]) -> None:
        self.unsharded.extend(f"{named_place(op)}: {reason}" for op, reason in reasons.items())

    def _rewrite(self, region: Region) -> None:
        first = region.sums[0].collective.op
        if self.rewrites.take(first, f"is scattered, one of {len(region.sums)} that share pieces"):
            self.sharded.extend(named_place(entry.collective.op) for entry in region.sums)
            self.rewriter.rewrite(region)

    def _sums(self, function: FuncOp, left: dict[Operation, str]) -> Iterator[Sum]:
        """The sums that may be scattered; `left` gets the others, and why not."""
        for op in function.block.ops:
            collective = collective_of(op)
            if collective is None or collective.kind != ALL_REDUCE:
                continue
            self.found = True
            rows = self._rows(collective)
            if isinstance(rows, Rows):
                yield Sum(collective, rows)
            else:
                left[op] = rows

    def _rows(self, collective: Collective) -> Rows | str:
        """How the rows of a sum are shared, or why they are not."""
        place = self.places.get(collective.group)
        if self.options.group not in (None, collective.group):
            return f"it is over group {collective.group!r}, option group is {self.options.group!r}"
        if collective.reduction != "sum":
            return f"it reduces by {collective.reduction!r}, not by 'sum'"
        if place is None:
            return f"{GROUP_PLACES} does not say how many ranks group {collective.group!r} has"
        if place.ranks == 1:
            return f"group {collective.group!r} has one rank"
        sizes = leading_sizes(collective.result)
        if not sizes or not row_bytes(collective.result.type):
            return f"a tensor of type {collective.result.type} has no rows of known size"
        count = _count(sizes)
        if count is None:
            return f"nothing is known of its number of rows, {' x '.join(map(str, sizes))}"
        return self._shared(Rows(collective.group, place, sizes, padded=False), count)

    def _shared(self, rows: Rows, count: Number) -> Rows | str:
        text = "*".join(map(str, rows.sizes))
        if not not_greater(self.options.min_tokens, count):
            return f"it has {text} rows, option min_tokens is {self.options.min_tokens}"
        if equal(divide(count, rows.place.ranks)[1], 0):
            return rows
        if not self.options.pad:
            known = "do not" if isinstance(count, int) else "are not known to"
            return f"{text} rows {known} go into {rows.place.ranks} equal pieces; pad=true adds rows"
        return Rows(rows.group, rows.place, rows.sizes, padded=True)

    def note(self) -> None:
        if not self.found:
            self.unsharded.append("the module has no all_reduce")
        for name, texts in ((SHARDED_SUMS, self.sharded), (UNSHARDED_SUMS, self.unsharded)):
            if texts:
                self.module.attributes[name] = text_array(texts)


def _count(sizes: tuple[int | str, ...]) -> Number | None:
    """The product of sizes; None if one is not known as a polynomial, or is 0."""
    count: Number = 1
    for size in sizes:
        known = size if isinstance(size, int) else parse(size)
        if known is None or known == 0:
            return None
        count = count * known
    return count


def _bytes(module: ModuleOp) -> StringAttr:
    """How many bytes the collectives of a module move, as far as its sizes are known."""
    try:
        moved = collective_bytes(module)
    except FxImportError:
        return StringAttr("depends on dynamic sizes")
    return StringAttr(str(moved) if moved.denominator == 1 else f"{float(moved):.1f}")


__all__ = ["COLLECTIVE_BYTES", "SHARDED_SUMS", "UNSHARDED_SUMS", "SequenceParallelPass"]
