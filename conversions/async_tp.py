"""`async-tp`: matrix products next to collectives are done in parts; one part is sent while the next is computed.

`reduce_scatter(mm(a, w))` and `mm(all_gather(x), w)` become as many products of rows as the group has ranks, each with
a collective of its own, all of which are begun before any of them is waited for. A part has rows of every rank's piece,
so that each rank gets its piece in order, and as many bytes are moved as before. The sums of a row are the same sums: a
bias is in each row of a part as it was in that of the whole. A library may add them in another order for fewer rows, so
results are equal up to the order of additions. What products there are is said in `row_products.py`.

Which operations were split stays in the module's `vllm_ir.split_products`, which were not and why in
`vllm_ir.unsplit_products`. What operations stated about pieces is checked before, and not stated any more behind.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.analysis.polynomials import divide, equal, parse
from vllm_ir.conversions.collectives import ALL_GATHER, REDUCE_SCATTER, Collective, collective_of
from vllm_ir.conversions.errors import describe, named_place
from vllm_ir.conversions.fusion.pattern import acts_outside, is_matchable
from vllm_ir.conversions.fusion.sites import Order
from vllm_ir.conversions.inline import inline, replace_value
from vllm_ir.conversions.notes import text_array
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.conversions.row_products import RowProduct, row_product
from vllm_ir.conversions.sequence_parallel import SHARDED, check_shards
from vllm_ir.conversions.trace import Examples, Traced, trace_callable
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import sizes_of
from vllm_ir.frontends.distributed.group_places import group_places
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.types import is_tensor

SPLIT = "vllm_ir.split_products"
UNSPLIT = "vllm_ir.unsplit_products"

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

    def scattered_product(self, product: RowProduct, *operands: Tensor) -> Tensor:
        """`reduce_scatter` of the product."""
        sent = [
            _functional.reduce_scatter_tensor(
                product.of(self._cut(product, operands, part)), "sum", self.ranks, self.group
            )
            for part in range(self.ranks)
        ]
        return torch.cat([_functional.wait_tensor(piece) for piece in sent])

    def gathered_products(self, products: Sequence[RowProduct], x: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        """The products of `all_gather(x)`, which is the left side of each; `operands` are those of all of them."""
        rows = x.shape[0] // self.ranks
        # Nothing is computed, and gloo knows no 8-bit floats: their bytes are sent.
        as_bytes = x.is_floating_point() and x.itemsize == 1
        parts = (x.view(torch.uint8) if as_bytes else x).reshape(self.ranks, rows, x.shape[1])
        sent = [
            _functional.all_gather_into_tensor(parts[part].contiguous(), self.ranks, self.group)
            for part in range(self.ranks)
        ]
        found: list[list[Tensor]] = []
        for part, piece in enumerate(sent):
            left = _functional.wait_tensor(piece)
            left = left.view(x.dtype) if as_bytes else left
            remaining = iter(operands)
            found.append([])
            for product in products:
                given = [next(remaining) for _ in range(len(product.op.operands) - 1)]
                given.insert(product.cut[0], left)
                result = product.of(self._cut(product, given, part, done=1))
                found[-1].append(result.view(self.ranks, rows, result.shape[1]))
        whole = (torch.stack(pieces, 1) for pieces in zip(*found, strict=True))
        return tuple(result.view(x.shape[0] * self.ranks, result.shape[-1]) for result in whole)

    def _cut(self, product: RowProduct, operands: Sequence[Tensor], part: int, done: int = 0) -> list[Tensor]:
        """The operands of a part of a product; the first `done` of those that are cut are so already."""
        given = list(operands)
        for index in product.cut[done:]:
            whole = given[index]
            parts = whole.reshape(self.ranks, self.ranks, whole.shape[0] // self.ranks**2, whole.shape[1])
            given[index] = parts[:, part].reshape(whole.shape[0] // self.ranks, whole.shape[1])
        return given


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
        matching = [product for op in products if (product := row_product(op, None if scatters else whole)) is not None]
        if not products or len(matching) < len(products):
            known = [product.op for product in matching]
            others = [op for op in products if op not in known]
            what = describe(others[0]) if others and isinstance(others[0], Operation) else "nothing that is computed"
            return (
                f"{what} is {'what it scatters' if scatters else 'behind it'}, which is no matrix product of its rows"
            )
        if scatters and any(use.operation is not collective.op for use in whole.uses):
            return f"%{whole.name_hint} is used by others as well"
        return self._in_parts(collective, matching, order)

    def _in_parts(self, collective: Collective, products: Sequence[RowProduct], order: Order) -> str | None:
        """Do a collective and its products in parts; otherwise the reason why not."""
        parts = _Parts(collective.group, self.places[collective.group].ranks)
        if collective.kind == REDUCE_SCATTER:
            (product,) = products
            operands, at = list(product.op.operands), collective.operations[-1]
            program = partial(parts.scattered_product, product)
        else:
            others = [
                operand for product in products for operand in product.op.operands if operand is not collective.result
            ]
            operands, at = [collective.source, *others], products[0].op
            program = partial(parts.gathered_products, products)
        late = _late(operands, at, order)
        if late is None:
            return "an operand of a product comes behind the first product and cannot be moved"
        types = [operand.type for operand in operands if is_tensor(operand.type)]
        key = (collective.kind, parts, *(product.key for product in products), *types)
        try:
            if key not in self.traced:
                self.traced[key] = trace_callable(program, types, self.examples, pure=True)
        except FxImportError as error:
            return f"its parts are refused: {error_summary(error)}"
        if not self.rewrites.take(collective.op, "is done in parts"):
            return f"option limit is {self.rewrites.limit}"
        self._replace(collective, products, self.traced[key], operands, late, at, order)
        return None

    def _replace(
        self,
        collective: Collective,
        products: Sequence[RowProduct],
        traced: Traced,
        operands: Sequence[SSAValue],
        late: Sequence[Operation],
        at: Operation,
        order: Order,
    ) -> None:
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
        scatters = collective.kind == REDUCE_SCATTER
        olds = [collective.result] if scatters else [product.op.results[0] for product in products]
        for old, result in zip(olds, inline(traced, operands, self.examples.original, b), strict=True):
            replace_value(old, result, b)
        order.place_before(new, at)
        whole = [product.op for product in products]
        for op in reversed([*whole, *collective.operations] if scatters else [*collective.operations, *whole]):
            order.erase(op)

    def note(self) -> None:
        if not self.split and not self.unsplit:
            self.unsplit.append("the module has no reduce_scatter and no all_gather")
        for name, texts in ((SPLIT, self.split), (UNSPLIT, self.unsplit)):
            if texts:
                self.module.attributes[name] = text_array(texts)


def _late(values: Sequence[SSAValue], place: Operation, order: Order) -> list[Operation] | None:
    """The operations that have to move in front of `place` to have values there, in order; None if one cannot."""
    found: dict[Operation, None] = {}

    def visit(value: SSAValue) -> bool:
        op = value.owner
        if not isinstance(op, Operation) or order[op] < order[place] or op in found:
            return True
        if op is place or acts_outside(op) or not is_matchable(op) or not all(map(visit, op.operands)):
            return False
        found[op] = None
        return True

    return list(found) if all(map(visit, values)) else None


__all__ = ["SPLIT", "UNSPLIT", "AsyncTpPass"]
