"""Rewriting a region: sums are scattered, operations work on pieces, and pieces are gathered where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, NoneAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.inline import inline
from vllm_ir.conversions.sequence_parallel.plan import Region, Rows, Sum
from vllm_ir.conversions.sequence_parallel.shards import SHARDED, Sharding, row_operands
from vllm_ir.conversions.trace import Examples, Traced, trace_callable
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.dialects.vllm_ir.types import LayoutAttr, dimensions, element_type_of, sizes_of
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.ops import ops

_Program: TypeAlias = Callable[..., Tensor]


@dataclass(frozen=True)
class _Forms:
    """What moves rows between the forms of a value, as programs that are traced."""

    rows: Rows

    def scatter(self, x: Tensor) -> Tensor:
        """The rank's piece of the sum."""
        return ops.reduce_scatter(self._whole_pieces(x), 0, self.rows.place.ranks, self.rows.group)

    def own(self, x: Tensor) -> Tensor:
        """The rank's piece of a value that all ranks have."""
        whole = self._whole_pieces(x)
        ranks = self.rows.place.ranks
        return whole.view(ranks, whole.shape[0] // ranks, whole.shape[1]).select(0, self.rows.place.rank or 0)

    def gather(self, piece: Tensor, like: Tensor) -> Tensor:
        """The whole of a value, with the rows of `like`."""
        flat = ops.all_gather(piece, 0, self.rows.place.ranks, self.rows.group)
        if self.rows.padded:
            flat = flat[: _count(like)]
        return flat if like.dim() == 2 else flat.view((*like.shape[:-1], flat.shape[1]))

    def _whole_pieces(self, x: Tensor) -> Tensor:
        flat = x if x.dim() == 2 else x.reshape(_count(x), x.shape[-1])
        if not self.rows.padded:
            return flat
        ranks = self.rows.place.ranks
        missing = (flat.shape[0] + ranks - 1) // ranks * ranks - flat.shape[0]
        return torch.ops.aten.constant_pad_nd.default(flat, [0, 0, 0, missing])


def _count(x: Tensor) -> int:
    """How many rows a tensor has."""
    count = 1
    for size in x.shape[:-1]:
        count = count * size
    return count


class Rewriter:
    """Rewrites the regions of a module."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self._traced: dict[Hashable, Traced] = {}

    def rewrite(self, region: Region) -> None:
        """Put a region's new operations in the place of those that it has."""
        _Region(region, self).run()

    def insert(
        self, b: CallBuilder, rows: Rows, form: str, operands: Sequence[SSAValue], program: _Program
    ) -> SSAValue:
        """Insert what `program` does to `operands`; `form` and `rows` tell programs apart."""
        types = [operand.type for operand in operands if is_tensor(operand.type)]
        key = (form, rows, *types)
        if key not in self._traced:
            self._traced[key] = trace_callable(program, types, self.examples, pure=True)
        return inline(self._traced[key], operands, self.examples.original, b)[0]


class _Region:
    def __init__(self, region: Region, rewriter: Rewriter) -> None:
        self.region = region
        self.rewriter = rewriter
        self.rows = region.sums[0].rows
        self.forms = _Forms(self.rows)
        self.like = region.sums[0].collective.source
        self.sharding = Sharding(0, self.rows.group).attribute
        self.pieces: dict[SSAValue, SSAValue] = {}

    def run(self) -> None:
        for entry in self.region.sums:
            self._scatter(entry)
        for op in self.region.operations:
            self._work_on_pieces(op)
        for op in reversed(self.region.operations):
            op.detach()
            op.erase()
        for entry in self.region.sums:
            for op in reversed(entry.collective.operations):
                op.detach()
                op.erase()

    def _scatter(self, entry: Sum) -> None:
        collective = entry.collective
        b = _builder(collective.operations[-1])
        piece = self.rewriter.insert(b, self.rows, "scatter", [collective.source], self.forms.scatter)
        self._is_piece(collective.result, piece)
        self._gather(collective.result, b)

    def _work_on_pieces(self, op: Operation) -> None:
        b = _builder(op)
        rows = row_operands(op) or ()
        pieces = {index: self._piece(op.operands[index], b) for index in rows}
        operands = [pieces.get(index, value) for index, value in enumerate(op.operands)]
        count = next(sizes_of(piece.type)[0] for piece in pieces.values())
        new = type(op).create(
            operands=operands,
            result_types=[_piece_type(result.type, count) for result in op.results],
            properties=op.properties,
            attributes=op.attributes,
        )
        for old, result in zip(op.results, b.add(new).results, strict=True):
            self._is_piece(old, result)
        for old in op.results:
            self._gather(old, b)

    def _piece(self, value: SSAValue, b: CallBuilder) -> SSAValue:
        """The piece of an operand: it is there, or the rank's own rows are taken."""
        if value not in self.pieces:
            self._is_piece(value, self.rewriter.insert(b, self.rows, "own", [value], self.forms.own))
        return self.pieces[value]

    def _is_piece(self, value: SSAValue, piece: SSAValue) -> None:
        self.pieces[value] = piece
        if not isinstance(piece.owner, Operation):
            raise TypeError(f"the piece of %{value.name_hint} is an argument")
        piece.owner.attributes[SHARDED] = self.sharding
        piece.name_hint = value.name_hint

    def _gather(self, value: SSAValue, b: CallBuilder) -> None:
        """Put the gathered value in the place of one that is needed whole."""
        if value not in self.region.gathered:
            return
        operands = [self.pieces[value], self.like]
        whole = self.rewriter.insert(b, self.rows, "gather", operands, self.forms.gather)
        if whole.type != value.type:
            whole = b.add(RelayoutOp.create(operands=[whole], result_types=[value.type])).results[0]
        working = {*self.region.operations}
        value.replace_uses_with_if(whole, lambda use: use.operation not in working)
        whole.name_hint = value.name_hint


def _piece_type(kind: Attribute, count: int | str) -> Attribute:
    """The type of a piece with `count` rows of a value, row-major."""
    width = sizes_of(kind)[-1]
    if not is_tensor(kind) or not isinstance(width, int):
        raise TypeError(f"{kind} is no tensor with rows of known size")
    device = kind.encoding.device if isinstance(kind.encoding, LayoutAttr) else NoneAttr()
    sizes = NoneAttr() if isinstance(count, int) else dimensions([count, width])
    plain = isinstance(sizes, NoneAttr) and isinstance(device, NoneAttr)
    layout = NoneAttr() if plain else LayoutAttr(sizes, NoneAttr(), device)
    return TensorType(element_type_of(kind), [count if isinstance(count, int) else DYNAMIC_INDEX, width], layout)


def _builder(op: Operation) -> CallBuilder:
    """Builds in front of an operation, in its name."""
    block = op.parent
    if block is None:
        raise ValueError(f"{op.name} is not in a block")
    b = CallBuilder(lambda new: block.insert_op_before(new, op))
    b.at(op)
    return b


__all__ = ["Rewriter"]
