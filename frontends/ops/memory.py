"""Questions about the memory of real tensors: do two overlap, does one overlap itself, are results fresh.

Answers are sound and not always exact: where a question would need a long search, the answer is "may overlap", which
costs a copy and never a wrong result.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor

from vllm_ir.frontends.ops.torch_internals import storage_id

_EXACT_LIMIT = 1 << 14
"""Windows of up to this many bytes are compared byte by byte when bounds do not decide."""


@dataclass(frozen=True)
class _Window:
    """The bytes a strided tensor touches: every `start + sum(index * stride)`, each an element of `itemsize` bytes."""

    start: int
    dims: tuple[tuple[int, int], ...]
    """(stride in bytes, size) of each dimension of more than one element, by growing stride."""
    itemsize: int

    @staticmethod
    def of(tensor: Tensor) -> "_Window":
        itemsize = tensor.element_size()
        dims = [
            (stride * itemsize, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
        ]
        return _Window(tensor.data_ptr(), tuple(sorted(dims)), itemsize)

    def extent(self, below: int | None = None) -> int:
        """Bytes from the first to the last, both included, along the dimensions with a stride less than `below`."""
        return self.itemsize + sum((size - 1) * stride for stride, size in self.dims if below is None or stride < below)

    def addresses(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """All of them."""
        found = self.start + np.arange(self.itemsize, dtype=np.int64)
        for stride, size in self.dims:
            if stride:
                found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
        return found


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two elements of a tensor may share memory, as those of an expanded tensor do."""
    if tensor.numel() == 0:
        return False
    window = _Window.of(tensor)
    return any(stride < window.extent(below=stride) or stride == 0 for stride, _ in window.dims) or any(
        left == right for (left, _), (right, _) in zip(window.dims, window.dims[1:], strict=False)
    )


def may_overlap(left: Tensor, right: Tensor) -> bool:
    """Whether two real, strided tensors may have a byte in common.

    Exact for small tensors, and for pieces of one tensor that are cut along one dimension (`split`, `chunk`, slices),
    also where their rows interleave. Addresses are compared, not storage objects, so tensors that share memory through
    numpy or DLPack count.
    """
    if left.device != right.device or left.numel() == 0 or right.numel() == 0:
        return False
    a, b = _Window.of(left), _Window.of(right)
    if a.start + a.extent() <= b.start or b.start + b.extent() <= a.start:
        return False
    pitches = {stride for stride, _ in (*a.dims, *b.dims) if stride > 0}
    if any(_in_separate_columns(a, b, pitch) for pitch in pitches):
        return False
    if max(left.numel() * a.itemsize, right.numel() * b.itemsize) > _EXACT_LIMIT:
        return True
    return bool(np.intersect1d(a.addresses(), b.addresses()).size)


def _in_separate_columns(a: _Window, b: _Window, pitch: int) -> bool:
    """Whether both windows lie in rows `pitch` bytes apart, each in its own range of columns.

    Where dimensions with a stride of at least the pitch move by whole rows, every address of a window, modulo the
    pitch, lies in one arc of the circle of columns. Two arcs without a common column prove the windows disjoint.
    """
    if any(stride >= pitch and stride % pitch for stride, _ in (*a.dims, *b.dims)):
        return False
    arcs = [(window.start % pitch, window.extent(below=pitch)) for window in (a, b)]
    (first, first_width), (second, second_width) = sorted(arcs)
    return first + first_width <= second and second + second_width <= first + pitch


def tensors_in(args: Iterable[object]) -> Iterator[Tensor]:
    """Every tensor among arguments, also those in lists."""
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from tensors_in(cast("Sequence[object]", arg))


def copied(args: Sequence[object], positions: Iterable[int]) -> list[object]:
    """The arguments, with those at `positions` that are tensors replaced by copies of them."""
    result = list(args)
    for position in positions:
        arg = args[position]
        if isinstance(arg, Tensor):
            result[position] = arg.clone()
    return result


def lie_apart(args: Iterable[object]) -> bool:
    """Whether the tensors among arguments are dense and certainly have no byte in common; a quick look, for kernels."""
    ranges: list[tuple[int, int]] = []
    for arg in args:
        if isinstance(arg, Tensor):
            if not arg.is_contiguous():
                return False
            start = arg.data_ptr()
            ranges.append((start, start + arg.nbytes))
        elif isinstance(arg, list | tuple):
            return False
    ranges.sort()
    return all(left[1] <= right[0] for left, right in itertools.pairwise(ranges))


def separated(args: Sequence[object], positions: Sequence[int]) -> list[object]:
    """The arguments, such that writing those at `positions` changes no other argument.

    An argument at `positions` stays as it is, unless it overlaps itself, an argument elsewhere, or an earlier one that
    stays; then a copy takes its place.
    """
    result = list(args)
    others = list(tensors_in(arg for position, arg in enumerate(args) if position not in positions))
    for position in positions:
        arg = args[position]
        if not isinstance(arg, Tensor):
            continue
        if overlaps_itself(arg) or any(may_overlap(arg, other) for other in others):
            result[position] = arg.clone()
        else:
            others.append(arg)
    return result


def without_overlap(results: Sequence[Tensor], others: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The results, no two with memory in common, nor one with `others`; a copy takes the place of one that has."""
    taken = list(others)
    kept: list[Tensor] = []
    for result in results:
        if any(may_overlap(result, other) for other in taken):
            result = result.clone()
        taken.append(result)
        kept.append(result)
    return tuple(kept)


def fresh(results: Sequence[Tensor], others: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The results, each with a storage of its own: one that shares it with `others` or an earlier result is copied.

    Works on fake and meta tensors as well, so that traced and real strides agree.
    """
    taken = {storage_id(other) for other in others}
    kept: list[Tensor] = []
    for result in results:
        if storage_id(result) in taken:
            result = result.clone()
        taken.add(storage_id(result))
        kept.append(result)
    return tuple(kept)
