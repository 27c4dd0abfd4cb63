"""`async-tp`: matrix products next to collectives are done in parts; one part is sent while the next is computed.

`reduce_scatter(mm(a, w))` and `mm(all_gather(x), w)` become as many products of rows as the group has ranks, each with
a collective of its own, all of which are begun before any of them is waited for. A part has rows of every rank's piece,
so that each rank gets its piece in order, and as many bytes are moved as before. The sums of a row are the same sums. A
library may add them in another order for fewer rows, so results are equal up to the order of additions.

Which operations were split stays in the module's `vllm_ir.split_products`, which were not and why in
`vllm_ir.unsplit_products`. What operations stated about pieces is checked before, and not stated any more behind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.analysis.polynomials import divide, equal, parse
from vllm_ir.conversions.collectives import ALL_GATHER, REDUCE_SCATTER, Collective, collective_of
from vllm_ir.conversions.errors import describe, named_place
from vllm_ir.conversions.fusion.pattern import is_matchable
from vllm_ir.conversions.fusion.sites import Order
from vllm_ir.conversions.inline import inline
from vllm_ir.conversions.notes import text_array
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.conversions.sequence_parallel import SHARDED, check_shards
from vllm_ir.conversions.trace import Examples, Traced, trace_callable
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.dialects.vllm_ir.types import sizes_of
from vllm_ir.frontends.distributed.group_places import group_places
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.types import is_tensor

SPLIT = "vllm_ir.split_products"
UNSPLIT = "vllm_ir.unsplit_products"

_PRODUCT = "aten.mm.default"
_functional = torch.ops._c10d_functional


@dataclass(frozen=True)
class AsyncTpPass(LimitedPass):
    """Split matrix products next to collectives into parts.

    `group`: only next to collectives of that group. `require`: how many collectives have to be split.
    """

    name = "async-tp"

    group: str | None = None
    require: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rewrite every functional function of the module.

        Raises:
            PassFailedException: not as many collectives were split as `require` says, or what operations state about
                pieces does not follow.
        """
        check_shards(op)
        splitting = _Splitting(op, self.group, self.start())
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None:
                splitting.run(function)
        splitting.note()
        if self.require is not None and len(splitting.split) != self.require:
            raise PassFailedException(
                f"async-tp: {len(splitting.split)} collectives were split, {self.require} required; "
                f"{'; '.join(splitting.unsplit)}"
            )


@dataclass(frozen=True)
class _Parts:
    """The programs of `parts` parts, which are traced. `own` rows are in a rank's piece, `ranks` such pieces make all.

    Part j consists of the j-th rows of each rank's piece.
    """

    group: str
    ranks: int

    def scattered_product(self, a: Tensor, weight: Tensor) -> Tensor:
        """`reduce_scatter(a @ weight)`."""
        parts = a.view(self.ranks, self.ranks, a.shape[0] // self.ranks**2, a.shape[1])
        sent = [
            _functional.reduce_scatter_tensor(
                parts[:, part].reshape(a.shape[0] // self.ranks, a.shape[1]) @ weight, "sum", self.ranks, self.group
            )
            for part in range(self.ranks)
        ]
        return torch.cat([_functional.wait_tensor(piece) for piece in sent])

    def gathered_products(self, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        """`all_gather(x) @ weight` for each weight."""
        rows = x.shape[0] // self.ranks
        parts = x.view(self.ranks, rows, x.shape[1])
        sent = [
            _functional.all_gather_into_tensor(parts[part].contiguous(), self.ranks, self.group)
            for part in range(self.ranks)
        ]
        products: list[list[Tensor]] = []
        for piece in sent:
            part = _functional.wait_tensor(piece)
            products.append([(part @ weight).view(self.ranks, rows, weight.shape[1]) for weight in weights])
        whole = (torch.stack(parts, 1) for parts in zip(*products, strict=True))
        return tuple(result.view(x.shape[0] * self.ranks, result.shape[-1]) for result in whole)


class _Splitting:
    def __init__(self, module: ModuleOp, group: str | None, rewrites: Rewrites) -> None:
        self.module = module
        self.group = group
        self.rewrites = rewrites
        self.places = group_places(module)
        self.examples = Examples()
        self.traced: dict[Hashable, Traced] = {}
        self.split: list[str] = []
        self.unsplit: list[str] = []

    def run(self, function: FuncOp) -> None:
        order = Order(function)
        for op in list(function.block.ops):
            op.attributes.pop(SHARDED, None)
            collective = collective_of(op)
            if collective is not None and collective.kind in (REDUCE_SCATTER, ALL_GATHER):
                reason = self._obstacle(collective) or self._split(collective, order)
                (self.unsplit if reason else self.split).append(
                    f"{named_place(op)}: {reason}" if reason else named_place(op)
                )

    def _obstacle(self, collective: Collective) -> str | None:
        """Why a collective cannot be done in parts, whatever is next to it."""
        place = self.places.get(collective.group)
        if self.group not in (None, collective.group):
            return f"it is over group {collective.group!r}, option group is {self.group!r}"
        if place is None or place.ranks == 1:
            return f"the module does not say that group {collective.group!r} has more than one rank"
        if collective.dimension != 0 or collective.reduction != "sum" or len(sizes_of(collective.source.type)) != 2:
            return "it is not about sums or rows of a matrix"
        own = sizes_of((collective.result if collective.kind == REDUCE_SCATTER else collective.source).type)[0]
        count = own if isinstance(own, int) else parse(own)
        if count is None or count == 0 or not equal(divide(count, place.ranks)[1], 0):
            return f"a rank's {own} rows are not known to go into {place.ranks} equal parts"
        return None

    def _split(self, collective: Collective, order: Order) -> str | None:
        """Split a collective and the products next to it; otherwise the reason why not."""
        scatters = collective.kind == REDUCE_SCATTER
        users = [use.operation for use in collective.result.uses]
        products = [collective.source.owner] if scatters else sorted(dict.fromkeys(users), key=order.__getitem__)
        whole = collective.source if scatters else collective.result
        matching = [op for op in products if isinstance(op, CallOp) and _is_product_of_rows(op, whole, scatters)]
        if not products or len(matching) < len(products):
            others = [op for op in products if op not in matching]
            what = describe(others[0]) if others and isinstance(others[0], Operation) else "nothing that is computed"
            return (
                f"{what} is {'what it scatters' if scatters else 'behind it'}, which is no matrix product of its rows"
            )
        if scatters and any(use.operation is not collective.op for use in whole.uses):
            return f"%{whole.name_hint} is used by others as well"
        place = collective.op if scatters else matching[0]
        weights = [op.operands[_operand(op, 1)] for op in matching]
        late = _late(weights, place, order)
        if late is None:
            return "a matrix comes behind the first product and cannot be moved"
        if self.rewrites.take(collective.op, "is done in parts"):
            self._replace(collective, matching, weights, late, order)
            return None
        return f"option limit is {self.rewrites.limit}"

    def _replace(
        self,
        collective: Collective,
        products: Sequence[CallOp],
        weights: Sequence[SSAValue],
        late: Sequence[Operation],
        order: Order,
    ) -> None:
        scatters = collective.kind == REDUCE_SCATTER
        parts = _Parts(collective.group, self.places[collective.group].ranks)
        at = collective.operations[-1] if scatters else products[0]
        block = at.parent
        if block is None:
            raise ValueError(f"{at.name} is not in a block")
        for op in late:
            op.detach()
            block.insert_op_before(op, at)
        order.place_before(list(late), at)
        new: list[Operation] = []

        def insert(op: Operation) -> None:
            block.insert_op_before(op, at)
            new.append(op)

        b = CallBuilder(insert)
        b.at(at)
        first = products[0].operands[_operand(products[0], 0)] if scatters else collective.source
        program = parts.scattered_product if scatters else parts.gathered_products
        results = self._insert((collective.kind, parts), program, [first, *weights], b)
        olds = [collective.result] if scatters else [op.results[0] for op in products]
        for old, result in zip(olds, results, strict=True):
            if result.type != old.type:
                result = b.add(RelayoutOp.create(operands=[result], result_types=[old.type])).results[0]
            old.replace_all_uses_with(result)
            result.name_hint = old.name_hint
        order.place_before(new, at)
        gone = [*products, *collective.operations] if scatters else [*collective.operations, *products]
        for op in reversed(gone):
            order.erase(op)

    def _insert(
        self, key: Hashable, program: Callable[..., object], operands: Sequence[SSAValue], b: CallBuilder
    ) -> list[SSAValue]:
        types = [operand.type for operand in operands if is_tensor(operand.type)]
        full = (key, *types)
        if full not in self.traced:
            self.traced[full] = trace_callable(program, types, self.examples, pure=True)
        return inline(self.traced[full], operands, self.examples.original, b)

    def note(self) -> None:
        if not self.split and not self.unsplit:
            self.unsplit.append("the module has no reduce_scatter and no all_gather")
        for name, texts in ((SPLIT, self.split), (UNSPLIT, self.unsplit)):
            if texts:
                self.module.attributes[name] = text_array(texts)


def _operand(op: CallOp, position: int) -> int:
    """The number of the operand that is an argument of a product."""
    # `x @ x` has one operand.
    return min(position, len(op.operands) - 1)


def _is_product_of_rows(op: CallOp, whole: SSAValue, gives: bool) -> bool:
    """Whether `op` is a matrix product that gives `whole`, or of which `whole` is the left side and no more."""
    if op.target != _PRODUCT:
        return False
    if gives:
        return op.results[0] is whole
    return op.operands[0] is whole and len(op.operands) == 2


def _late(values: Sequence[SSAValue], place: Operation, order: Order) -> list[Operation] | None:
    """The operations that have to move in front of `place` to have values there, in order; None if one cannot."""
    found: dict[Operation, None] = {}

    def visit(value: SSAValue) -> bool:
        op = value.owner
        if not isinstance(op, Operation) or order[op] < order[place] or op in found:
            return True
        if op is place or not is_matchable(op) or not all(map(visit, op.operands)):
            return False
        found[op] = None
        return True

    return list(found) if all(map(visit, values)) else None


__all__ = ["SPLIT", "UNSPLIT", "AsyncTpPass"]
