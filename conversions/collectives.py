"""Collectives in a module, whichever way they are called, and how many bytes they move.

An op of the registry and torch's functional collective with the wait for it are the same to those who ask here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import sympy  # pyright: ignore[reportMissingTypeStubs]  # SymPy ships none
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.types import byte_size, element_type_of, sizes_of
from vllm_ir.frontends.distributed.group_names import group_of
from vllm_ir.frontends.distributed.group_places import Place, group_places
from vllm_ir.frontends.fx.symbols import evaluate
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.ops.collective_norms import BEHIND_SUM

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all_reduce", "reduce_scatter", "all_gather"

_WAIT = "_c10d_functional.wait_tensor.default"
_FUNCTIONAL = {
    "_c10d_functional.all_reduce.default": ALL_REDUCE,
    "_c10d_functional.reduce_scatter_tensor.default": REDUCE_SCATTER,
    "_c10d_functional.all_gather_into_tensor.default": ALL_GATHER,
}
_OPS = {f"vllm_ir.{kind}": kind for kind in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)}


@dataclass(frozen=True)
class Collective:
    """One collective on one tensor."""

    kind: str
    """`all_reduce`, `reduce_scatter` or `all_gather`."""
    group: str
    source: SSAValue
    result: SSAValue
    """What the program uses, behind the wait."""
    operations: tuple[Operation, ...]
    """The operations that it consists of, in their order."""
    reduction: str = "sum"
    dimension: int = 0
    """The dimension that is cut or grows."""

    @property
    def op(self) -> Operation:
        """The operation that names the group."""
        return self.operations[0]


def collective_of(op: Operation) -> Collective | None:
    """The collective that begins with `op`; None for anything else, and where the result is used without a wait."""
    group = group_of(op)
    kind = _FUNCTIONAL.get(op.target) if isinstance(op, CallOp) else _OPS.get(op.name)
    if group is None or kind is None or not all(is_tensor(value.type) for value in (*op.operands, *op.results)):
        return None
    source, result = op.operands[0], op.results[0]
    if not isinstance(op, CallOp):
        given = op.properties.get("dim")
        dimension = given.value.data if isinstance(given, IntegerAttr) else 0
        return Collective(kind, group, source, result, (op,), dimension=dimension % max(len(sizes_of(source.type)), 1))
    uses = list(result.uses)
    wait = uses[0].operation if len(uses) == 1 else None
    if not isinstance(wait, CallOp) or wait.target != _WAIT:
        return None
    return Collective(kind, group, source, wait.results[0], (op, wait), _reduction(op))


def _fused_sum(op: Operation) -> Collective | None:
    """The sum that a fused op begins with; its result is in no value."""
    group = group_of(op) if op.name.removeprefix("vllm_ir.") in BEHIND_SUM else None
    return None if group is None else Collective(ALL_REDUCE, group, op.operands[0], op.results[0], (op,))


def _reduction(op: CallOp) -> str:
    given = op.arguments()[1]
    return given.data.lower() if isinstance(given, StringAttr) else "sum"


@dataclass(frozen=True)
class Traffic:
    """What each rank sends for one collective, in a ring."""

    collective: Collective
    ranks: int
    sizes: tuple[int | str, ...]
    """Sizes of the whole tensor: what is reduced, or what is there once all is gathered."""
    element_bytes: int

    @property
    def share(self) -> Fraction:
        """The part of the whole that a rank sends: (n-1)/n, and twice that to reduce what all ranks have to get."""
        return ring_share(self.collective.kind, self.ranks)

    def bytes(self, symbols: Mapping[str, int]) -> Fraction:
        """How many bytes it sends for these values of symbolic sizes. FxImportError: a symbol has none."""
        values = {name: sympy.Integer(value) for name, value in symbols.items()}
        sizes = (size if isinstance(size, int) else int(evaluate(size, values)) for size in self.sizes)
        return self.share * self.element_bytes * prod(sizes)


def ring_share(kind: str, ranks: int) -> Fraction:
    """See `Traffic.share`."""
    return Fraction(ranks - 1, ranks) * (2 if kind == ALL_REDUCE else 1)


def traffic_of(collective: Collective, place: Place) -> Traffic:
    """What a collective moves, for a group of as many ranks as `place` says."""
    whole = collective.operations[0].results[0] if collective.kind == ALL_GATHER else collective.source
    return Traffic(collective, place.ranks, sizes_of(whole.type), byte_size(element_type_of(whole.type)))


def traffic(module: ModuleOp) -> Iterator[Traffic]:
    """What the all_reduce, reduce_scatter and all_gather of a module move, in order.

    Only of groups whose number of ranks the module says, see `group_places`.
    """
    places = group_places(module)
    for op in module.walk():
        collective = collective_of(op) or _fused_sum(op)
        if collective is not None and collective.group in places:
            yield traffic_of(collective, places[collective.group])


def collective_bytes(module: ModuleOp, symbols: Mapping[str, int] | None = None) -> Fraction:
    """How many bytes each rank sends, all in all; `symbols` are values of symbolic sizes.

    An all_reduce counts 2(n-1)/n of its tensor, a reduce_scatter and an all_gather (n-1)/n of the whole one.

    Raises:
        FxImportError: a size depends on a symbol without a value.
    """
    return sum((entry.bytes(symbols or {}) for entry in traffic(module)), Fraction())


def row_bytes(type: Attribute) -> int:
    """Bytes of a row, along the last dimension, of a tensor type; 0 if that is not known."""
    size = sizes_of(type)[-1]
    return size * byte_size(element_type_of(type)) if isinstance(size, int) else 0
