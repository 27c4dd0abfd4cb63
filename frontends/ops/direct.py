"""Calls of ops on plain tensors, without a detour through torch's dispatcher.

A call can go straight to the chosen implementation where nothing watches: no tracer, mode, transform or tape, and only
ordinary tensors. Which implementation that is depends on the priority list and on what `supports_args` may look at,
which is everything about tensors but their contents. What was found out for the last kinds of arguments is kept as
routes, so that a call like one before costs little more than the kernel: `benchmarks/eager_calls.py` says how much.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from vllm_ir.frontends.ops.priority import wants_batch_invariance
from vllm_ir.frontends.ops.torch_internals import is_watched, same_kind_of_tensors

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.impl import IrOpImpl
    from vllm_ir.frontends.ops.op import IrOp

_PLAIN_TENSORS = frozenset((Tensor, torch.nn.Parameter))
_PLAIN_VALUES = frozenset((int, float, bool, str, type(None), torch.dtype))
_ADDRESS = Tensor.data_ptr
_LIMIT = 16
"""So many routes are kept for each op: those that were used last."""


def are_plain(args: Sequence[object]) -> bool:
    """Whether a call with these arguments has the same effect without torch's dispatcher, if nothing watches."""
    if not any(isinstance(arg, Tensor) for arg in args):
        return False
    recording = torch.is_grad_enabled()
    for arg in args:
        kind = type(arg)
        if kind in _PLAIN_TENSORS:
            tensor = cast(Tensor, arg)
            if tensor.is_meta or tensor.layout is not torch.strided or (recording and tensor.requires_grad):
                return False
        elif kind not in _PLAIN_VALUES:
            return False
    return True


class Route:
    """Where calls with one kind of arguments go.

    Attributes:
        impl: the implementation.
        tensors: gives the tensors among the arguments of a call.
    """

    __slots__ = (
        "_apart",
        "_count",
        "_others",
        "_same_tensors",
        "_settings",
        "_sizes",
        "_values",
        "_written",
        "impl",
        "tensors",
    )

    def __init__(self, impl: IrOpImpl, args: Sequence[object], settings: object) -> None:
        """For plain arguments of a call, as they were given: those at the end that have defaults may be missing."""
        positions = [position for position, arg in enumerate(args) if isinstance(arg, Tensor)]
        self.impl = impl
        self.tensors = cast("Callable[[Sequence[object]], tuple[Tensor, ...]]", _getter(positions))
        self._others = _getter([position for position in range(len(args)) if position not in positions])
        tensors = self.tensors(args)
        self._count = len(args)
        self._settings = settings
        self._same_tensors = same_kind_of_tensors(tensors)
        self._values = self._others(args)
        self._sizes = [tensor.nbytes for tensor in tensors]
        written = [positions.index(index) for index in impl.written_indices if index in positions]
        self._written = cast("Callable[[Sequence[Tensor]], tuple[Tensor, ...]]", _getter(written))
        dense = all(tensor.is_contiguous() for tensor in tensors)
        pairs = itertools.combinations(range(len(tensors)), 2)
        self._apart = [pair for pair in pairs if not set(pair).isdisjoint(written)] if dense else None

    def serves(self, args: Sequence[object], settings: object) -> bool:
        """Whether arguments are of the same kind, and the settings the same."""
        return (
            len(args) == self._count
            and self._same_tensors(*self.tensors(args))
            and self._others(args) == self._values
            and settings == self._settings
        )

    def lie_apart(self, tensors: Sequence[Tensor]) -> bool:
        """Whether tensors of this kind are dense, and those that are written have no byte in common with others."""
        if self._apart is None:
            return False
        sizes = self._sizes
        starts = list(map(_ADDRESS, tensors))
        for one, other in self._apart:
            if starts[one] < starts[other] + sizes[other] and starts[other] < starts[one] + sizes[one]:
                return False
        return True

    def gives_written(self, results: object, tensors: Sequence[Tensor]) -> bool:
        """Whether results, as many as the op has, are written arguments themselves, in their order."""
        if type(results) is not tuple or len(cast("tuple[object, ...]", results)) != self.impl.op.result_count:
            return False
        written = self._written(tensors)
        same = map(operator.is_, cast("tuple[object, ...]", results), written)
        return len(written) >= self.impl.op.result_count and all(same)


class Routes:
    """The routes of one op, the one that was used last in front."""

    def __init__(self, op: IrOp) -> None:
        """Start without any."""
        self._op = op
        self._routes: tuple[Route, ...] = ()

    def of(self, args: Sequence[object]) -> Route | None:
        """The route of a call; None if it has to go through torch's dispatcher.

        The arguments are those by position; errors are those of `IrOp.complete` and `IrOp.select`.
        """
        if is_watched():
            return None
        settings = (self._op.named_priority(), wants_batch_invariance(), torch.is_grad_enabled())
        routes = self._routes
        for route in routes:
            if route.serves(args, settings):
                if route is not routes[0]:
                    self._routes = (route, *(other for other in routes if other is not route))
                return route
        return self._new(args, settings)

    def _new(self, args: Sequence[object], settings: object) -> Route | None:
        complete = self._op.complete(args)
        if not are_plain(complete):
            return None
        route = Route(self._op.select(complete)[0], args, settings)
        self._routes = (route, *self._routes[: _LIMIT - 1])
        return route

    def clear(self) -> None:
        """Forget all, because an implementation was added or removed."""
        self._routes = ()


def _getter(positions: Sequence[int]) -> Callable[[Sequence[object]], tuple[object, ...]]:
    """Gives the arguments at these positions, as a tuple."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    return (lambda args: (args[positions[0]],)) if positions else lambda _args: ()
