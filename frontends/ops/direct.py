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
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from vllm_ir.frontends.ops.eager import beside_written, results_of, run_donating, run_functional
from vllm_ir.frontends.ops.memory import fresh
from vllm_ir.frontends.ops.priority import settings
from vllm_ir.frontends.ops.torch_internals import (
    increment_versions,
    is_grad_enabled,
    is_watched,
    is_watched_beside_keys,
    same_kind_of_tensors,
)
from vllm_ir.frontends.ops.torch_library import unpacked

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.impl import IrOpImpl
    from vllm_ir.frontends.ops.op import IrOp

_PLAIN_TENSORS = frozenset((Tensor, torch.nn.Parameter))
_PLAIN_VALUES = frozenset((int, float, bool, str, type(None), torch.dtype))
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
    """Where calls with one kind of arguments go. Arguments are those by position, as they are given."""

    __slots__ = (
        "_extents",
        "_given_back",
        "_impl",
        "_only_result",
        "_positions",
        "_run",
        "_single",
        "_versioned",
        "count",
        "others",
        "recording",
        "same_tensors",
        "settings",
        "tensors",
        "values",
    )

    def __init__(self, impl: IrOpImpl, args: tuple[object, ...], settings: object, recording: bool) -> None:
        """For plain arguments of a call; those at the end that have defaults may be missing."""
        positions = [position for position, arg in enumerate(args) if isinstance(arg, Tensor)]
        self._impl = impl
        self._positions = positions
        self._run = cast("Callable[..., Tensor | tuple[Tensor, ...]]", impl.impl_fn)  # which is not taken for granted
        self.tensors = cast("Callable[[tuple[object, ...]], tuple[Tensor, ...]]", _getter(positions))
        self.others = _getter([position for position in range(len(args)) if position not in positions])
        tensors = self.tensors(args)
        self.count = len(args)
        self.settings = settings
        self.recording = recording
        self.same_tensors = same_kind_of_tensors(tensors)
        self.values = self.others(args)
        written = [position for position in impl.written_indices if position in positions]
        self._plan_results(written)
        dense = all(tensor.is_contiguous() for tensor in tensors)
        sizes = (tensor.nbytes for tensor in tensors)
        self._extents = [*zip(positions, sizes, strict=True)] if dense and written else None
        versioned = [position for position in written if recording and not cast(Tensor, args[position]).is_inference()]
        self._versioned = cast("Callable[[tuple[object, ...]], tuple[Tensor, ...]]", _getter(versioned))

    def _plan_results(self, written: Sequence[int]) -> None:
        """Where the results are among the arguments if they are written ones, in their order."""
        count = self._impl.op.result_count
        self._single = count == 1
        self._only_result = written[0] if self._single and written else None
        self._given_back = [*enumerate(written[:count])] if 1 < count <= len(written) else []

    def call(self, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:  # Any: each op has its own arguments
        """`run_functional` for arguments of this kind."""
        impl = self._impl
        if impl.written:
            return unpacked(run_functional(impl, impl.op.complete(args)))
        result = self._run(*args)
        if self._single and isinstance(result, Tensor):
            storage = result.untyped_storage()
            for position in self._positions:
                # As long as its Python wrapper lives, a storage has no other one.
                if args[position].untyped_storage() is storage:
                    return result.clone()
            return result
        return unpacked(fresh(results_of(impl, result), self.tensors(args)))

    def donate(self, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:  # Any: as above
        """`run_donating` for arguments of this kind."""
        # All in one function: the parts cost little more than their calls would.
        if self._extents is None:
            return self._donate_with_care(args)
        end = 0
        for position, size in self._extents:
            start = args[position].data_ptr()
            if start < end:
                if self._lie_apart(args, self._extents):
                    break
                return self._donate_with_care(args)
            end = start + size
        if self.recording:
            increment_versions(self._versioned(args))  # as in `run_donating`
        results = self._run(*args)
        if type(results) is tuple and len(results) == len(self._given_back):
            for place, position in self._given_back:
                if results[place] is not args[position]:
                    break
            else:
                return results
        elif self._only_result is not None and results is args[self._only_result]:
            return results
        impl = self._impl
        return unpacked(beside_written(impl, results_of(impl, results), impl.op.complete(args)))

    def _donate_with_care(self, args: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
        impl = self._impl
        return unpacked(run_donating(impl, impl.op.complete(args))) if impl.written else self.call(args)

    def _lie_apart(self, args: tuple[Any, ...], extents: Sequence[tuple[int, int]]) -> bool:
        """Whether dense tensors have no byte in common, whatever their order."""
        starts = sorted((args[position].data_ptr(), size, position) for position, size in extents)
        if any(start + size > following for (start, size, _), (following, _, _) in itertools.pairwise(starts)):
            return False
        # The next call's tensors often lie in the same order.
        self._extents = [(position, size) for _, size, position in starts]
        return True


class Routes:
    """The routes of one op, those that were used last in front."""

    def __init__(self, op: IrOp) -> None:
        """Start without any."""
        self._op = op
        self._routes: list[Route] = []

    def of(self, args: tuple[object, ...]) -> Route | None:
        """The route of a call; None if it has to go through torch's dispatcher.

        The arguments are those by position; errors are those of `IrOp.complete` and `IrOp.select`.
        """
        if is_watched_beside_keys():
            return None
        # The priorities of another registry change without notice.
        chosen_by = settings() if self._op.foreign is None else (settings(), self._op.named_priority())
        recording = is_grad_enabled()
        routes = self._routes
        for route in routes:
            if (
                len(args) == route.count
                and recording is route.recording
                and chosen_by == route.settings
                and route.same_tensors(*route.tensors(args))
                and route.others(args) == route.values
            ):
                # Not the second one: two that take turns would change places in every call.
                if route is not routes[0] and route is not routes[1]:
                    routes[:] = [route, *(other for other in routes if other is not route)]
                return route
        return self._new(routes, args, chosen_by, recording)

    def _new(self, routes: list[Route], args: tuple[object, ...], chosen_by: object, recording: bool) -> Route | None:
        if is_watched():
            return None
        complete = self._op.complete(args)
        if not are_plain(complete):
            return None
        route = Route(self._op.select(complete)[0], args, chosen_by, recording)
        routes[:] = [route, *routes[: _LIMIT - 1]]
        return route

    def clear(self) -> None:
        """Forget all, because an implementation or the default priority has changed; call it after the change."""
        # A new list: what other threads are finding out meanwhile goes into the old one.
        self._routes = []


def _getter(positions: Sequence[int]) -> Callable[[tuple[object, ...]], tuple[object, ...]]:
    """Gives the arguments at these positions, as a tuple."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    first = positions[0] if positions else 0
    return operator.itemgetter(slice(first, first + len(positions)))
