"""Compiled graphs that write arguments run only on arguments that lie in memory as those they were compiled for.

A graph compiled for separate tensors reads one argument after it has written another; if both share memory it must see
the write. So addresses are compared at each call, and arguments that lie otherwise get an artifact of their own.

Dynamo has a guard for this, `StorageOverlap`, but it takes for granted that the tensors share one storage: it compares
offsets only, and holds or fails for separate tensors by chance.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import cast

from torch import Tensor

from vllm_ir.frontends.ops.memory import may_overlap
from vllm_ir.tools.torch_internals import has_address, recompile_limit

Compiled = Callable[..., object]

_logger = logging.getLogger("vllm_ir")


@dataclass(frozen=True)
class Arrangement:
    """How the arguments of a compiled graph lie in memory.

    `groups` holds arguments that overlap, each with its distance in bytes from the first of its group. No other pair
    with a written argument in it overlaps.
    """

    written: frozenset[int]
    groups: tuple[tuple[tuple[int, int], ...], ...]

    @staticmethod
    def of(arguments: Sequence[object], written: frozenset[int], groups: Sequence[Sequence[int]]) -> "Arrangement":
        """The arrangement of `arguments`, of which `groups` overlap."""
        return Arrangement(written, tuple(_distances(arguments, group) for group in groups))

    def fits(self, arguments: Sequence[object]) -> bool:
        """Whether `arguments` lie as described."""
        group_of: dict[int, int] = {}
        for number, group in enumerate(self.groups):
            if _distances(arguments, [position for position, _ in group]) != group:
                return False
            group_of.update({position: number for position, _ in group})
        return all(
            left in group_of and group_of[left] == group_of.get(right)
            for left, right in overlapping_pairs(arguments)
            if left in self.written or right in self.written
        )


def _distances(arguments: Sequence[object], group: Sequence[int]) -> tuple[tuple[int, int], ...]:
    first = cast(Tensor, arguments[group[0]]).data_ptr()
    return tuple((position, cast(Tensor, arguments[position]).data_ptr() - first) for position in group)


def overlapping_pairs(arguments: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Positions of tensors that may have a byte in common, in the order of their addresses."""
    tensors = ((i, value) for i, value in enumerate(arguments) if isinstance(value, Tensor) and value.numel() > 0)
    ranges = sorted((tensor.data_ptr(), tensor.data_ptr() + _extent(tensor), i) for i, tensor in tensors)
    active: list[tuple[int, int]] = []
    for start, end, position in ranges:
        active = [(other_end, other) for other_end, other in active if other_end > start]
        for _, other in active:
            if may_overlap(cast(Tensor, arguments[other]), cast(Tensor, arguments[position])):
                yield other, position
        active.append((end, position))


def overlapping_groups(arguments: Sequence[object]) -> list[list[int]]:
    """Positions of tensors that overlap, directly or through others."""
    groups: list[set[int]] = []
    for pair in overlapping_pairs(arguments):
        touching = [group for group in groups if not group.isdisjoint(pair)]
        groups = [group for group in groups if group.isdisjoint(pair)]
        groups.append(set(pair).union(*touching))
    return [sorted(group) for group in groups]


def same_window(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are the same elements of the same memory, in the same order."""
    return (
        left.data_ptr() == right.data_ptr()
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.dtype == right.dtype
    )


def can_overlap(arguments: Sequence[object]) -> bool:
    """Whether there are two tensors among the arguments, all of them real, so that their addresses mean something."""
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    return len(tensors) > 1 and all(map(has_address, tensors))


def _extent(tensor: Tensor) -> int:
    """Bytes from the first element to the end of the last."""
    if tensor.numel() == 0:
        return 0
    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return elements * tensor.element_size()


@dataclass(frozen=True)
class _Known:
    """Addresses that are known to fit, by tensor, with the bytes that each tensor extends over."""

    pointers: tuple[int, ...]
    numbers: tuple[object, ...]
    extents: tuple[int, ...]


class ArrangementCheck:
    """Whether arguments fit an arrangement; quick where all or most of them lie where those of the last call did."""

    def __init__(self, arrangement: Arrangement, arguments: Sequence[object]) -> None:
        """Check against `arrangement`; `arguments` tell which of them are tensors: two at least."""
        tensors = [i for i, value in enumerate(arguments) if isinstance(value, Tensor)]
        grouped = {position for group in arrangement.groups for position, _ in group}
        self._arrangement = arrangement
        self._tensors = itemgetter(*tensors)
        # Sizes that may change between calls are among the arguments, as numbers.
        self._numbers = [i for i, value in enumerate(arguments) if not isinstance(value, Tensor)]
        self._written = [k for k, position in enumerate(tensors) if position in arrangement.written]
        self._grouped = [position in grouped for position in tensors]
        self._known: _Known | None = None

    def holds(self, arguments: Sequence[object]) -> bool:
        """Whether `arguments` fit."""
        tensors: tuple[Tensor, ...] = self._tensors(arguments)
        pointers = tuple(map(Tensor.data_ptr, tensors))
        numbers = tuple(arguments[i] for i in self._numbers) if self._numbers else ()
        known = self._known
        if known is not None and numbers == known.numbers:
            if pointers == known.pointers:
                return True
            if self._moved_apart(pointers, known):
                self._known = _Known(pointers, numbers, known.extents)
                return True
        if not self._arrangement.fits(arguments):
            return False
        self._known = _Known(pointers, numbers, tuple(map(_extent, tensors)))
        return True

    def _moved_apart(self, pointers: tuple[int, ...], known: _Known) -> bool:
        """Whether the tensors that moved since the last call overlap none that they must not; False if in doubt."""
        extents = known.extents
        for k, start in enumerate(pointers):
            if start == known.pointers[k]:
                continue
            if self._grouped[k]:
                return False
            end = start + extents[k]
            for other in range(len(pointers)) if k in self._written else self._written:
                if other != k and pointers[other] < end and start < pointers[other] + extents[other]:
                    return False
        return True


class CheckedCall:
    """Runs a compiled graph where the arguments fit its arrangement, and one compiled for them elsewhere.

    A program may call with ever new arrangements; beyond Dynamo's limit for recompilations they run uncompiled.
    """

    def __init__(
        self,
        call: Compiled | None,
        check: ArrangementCheck | None,
        compile_for: Callable[[Sequence[object]], Compiled],
        uncompiled: Compiled,
    ) -> None:
        """Check calls of `call`.

        Args:
            call: takes all arguments, and was compiled for an arrangement of them; None if nothing is compiled yet.
            check: tells this arrangement; None like `call`.
            compile_for: makes a callable like `call`, for the arguments given.
            uncompiled: the program as it was written.
        """
        self._call = call
        self._check = check
        self._compile_for = compile_for
        self._uncompiled = uncompiled
        self._others: dict[object, Compiled] = {}
        self._lock = threading.Lock()

    def __call__(self, *arguments: object) -> object:
        """Run the program."""
        if self._call is not None and self._check is not None and self._check.holds(arguments):
            return self._call(*arguments)
        return self._other(arguments)(*arguments)

    def _other(self, arguments: Sequence[object]) -> Compiled:
        key = _signature(arguments)
        with self._lock:
            if key not in self._others and len(self._others) < recompile_limit():
                self._others[key] = self._compile_for(arguments)
        if key not in self._others:
            _logger.warning("arguments overlap in more than %d ways: running uncompiled", recompile_limit())
        return self._others.get(key, self._uncompiled)


def _signature(arguments: Sequence[object]) -> object:
    """What an artifact for static sizes depends on: metadata, numbers, and who overlaps whom at which distance."""
    facts = tuple((tuple(v.shape), v.stride(), v.dtype) if isinstance(v, Tensor) else v for v in arguments)
    pointers = {i: value.data_ptr() for i, value in enumerate(arguments) if isinstance(value, Tensor)}
    return facts, tuple((i, j, pointers[j] - pointers[i]) for i, j in overlapping_pairs(arguments))
