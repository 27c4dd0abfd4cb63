"""Pure functions on tensors that somebody else has compiled: what they return is checked, and made the caller's own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor

from vllm_ir.backends.program_call import Steps, Strides
from vllm_ir.backends.stablehlo.signature import TensorFacts


@dataclass(frozen=True)
class ExpectedResult:
    """What a result has to be."""

    described: str
    """The result in error messages: which one of what, and the user's file and line."""
    tensor: TensorFacts | None
    """None for a number."""
    device: str
    """The kind of device, of a tensor."""
    is_returned: bool
    """Whether the caller gets the tensor itself, so that its strides matter."""


class TensorFunction:
    """Calls a compiled function. Its results may be in any layout, and in the memory of operands or of each other."""

    def __init__(self, name: str, call: Callable[..., object], results: Sequence[ExpectedResult]) -> None:
        """Of the backend `name`."""
        self._name = name
        self._call = call
        self._results = results
        self._layouts = [Strides(each.tensor) if each.tensor and each.is_returned else None for each in results]

    def steps(self, arguments: int) -> Steps:
        """The steps of a call with that many arguments."""
        return Steps((_operand,) * arguments, self.run, _tensor, _number, _settle)

    def run(self, operands: Sequence[object]) -> list[object]:
        """The results, each in memory that nothing else is in, and with the strides of eager mode if it is returned.

        Raises:
            TypeError: the function returns something else than a tuple of tensors and numbers.
            ValueError: it returns another number of results, or one of another dtype, shape or device.
        """
        given = self._call(*operands)
        if not isinstance(given, tuple | list):
            raise TypeError(f"backend {self._name!r}: the compiled callable returns {_kind(given)}, not a tuple")
        values = list(cast("Sequence[object]", given))
        if len(values) != len(self._results):
            raise ValueError(
                f"backend {self._name!r}: the compiled callable returns {len(values)} values, "
                f"its function has {len(self._results)} results"
            )
        memory = _Memory(value for value in operands if isinstance(value, Tensor))
        taken: list[tuple[int, int]] = []
        for index, (value, result, layout) in enumerate(zip(values, self._results, self._layouts, strict=True)):
            self._check(value, result)
            if isinstance(value, Tensor) and value.numel():
                start, end = _range(value)
                shared = memory.overlaps(start, end) or any(start < last and first < end for first, last in taken)
                taken.append((start, end))
                if shared:
                    values[index] = value.clone() if layout is None else layout.copy(value)
        return [
            value if layout is None else layout(cast(Tensor, value))
            for value, layout in zip(values, self._layouts, strict=True)
        ]

    def _check(self, value: object, result: ExpectedResult) -> None:
        facts = result.tensor
        if facts is None:
            if not isinstance(value, int | float):
                raise TypeError(f"backend {self._name!r}: {result.described} is {_kind(value)}, it has to be a number")
        elif not isinstance(value, Tensor):
            raise TypeError(f"backend {self._name!r}: {result.described} is {_kind(value)}, it has to be a tensor")
        elif value.shape != facts.shape or value.dtype != facts.dtype or value.device.type != result.device:
            raise ValueError(
                f"backend {self._name!r}: {result.described} is "
                f"{_described(value.dtype, value.shape, value.device.type)}, it has to be "
                f"{_described(facts.dtype, facts.shape, result.device)}"
            )


class _Memory:
    """The memory of some tensors."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        ranges = sorted(set(map(_range, tensors)))
        self._starts = [start for start, _ in ranges]
        # Of all that begin before an address, the last end decides.
        self._ends = list(accumulate((end for _, end in ranges), max))

    def overlaps(self, start: int, end: int) -> bool:
        """Whether anything between two addresses is in it."""
        count = bisect_left(self._starts, end)
        return count > 0 and self._ends[count - 1] > start


def _range(tensor: Tensor) -> tuple[int, int]:
    """The addresses of a tensor's storage. Not its identity: what NumPy was lent comes back as another storage."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _operand(value: object) -> object:
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


def _tensor(value: Tensor) -> Tensor:
    return value


def _number(value: int) -> int:
    return value


def _settle(tensor: Tensor, value: Tensor) -> None:
    """Give an argument its new contents; expanded ones have none, as for XLA."""
    if not any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        tensor.copy_(value)


def _described(dtype: torch.dtype, shape: Sequence[int], device: str) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
