"""Running a compiled function on tensors: their memory goes to XLA and back without copies.

An argument that a result aliases is imported so that XLA may write it, and the result is then the same memory: nothing
is copied, and whoever has the tensor, or a view of it, sees the new contents. That holds for tensors that are
contiguous and aligned; others, and arguments whose memory overlaps that of another one, are copied in and written back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from vllm_ir.backends.program_call import Compiled, Steps, call_of
from vllm_ir.backends.stablehlo.jaxlib_calls import Buffer, Executable, Importer, exported
from vllm_ir.backends.stablehlo.signature import Argument, Signature

ALIGNMENT = 64
"""Bytes. XLA CPU's code may use aligned loads of this size; PyTorch allocates so, but a slice may start anywhere."""


class Execution:
    """Runs a compiled function. Its methods are steps of a call, see `Steps`."""

    def __init__(self, executable: Executable) -> None:
        """Run `executable`."""
        self._execute = executable.execute
        importer = Importer()
        self._readable = importer.readable
        self._writable = importer.writable

    def run(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """The results, which are there."""
        results = self._execute(buffers)
        if results:
            results[0].block_until_ready()
        return results

    def read(self, tensor: Tensor) -> Buffer:
        """An argument that stays as it is."""
        return self._readable(_importable(tensor))

    def read_copy(self, tensor: Tensor) -> Buffer:
        """An argument that may overlap one that XLA writes: its contents now."""
        return self._readable(tensor.detach().clone(memory_format=torch.contiguous_format))

    def read_number(self, number: int) -> Buffer:
        """An integer."""
        return self._readable(torch.tensor(number, dtype=torch.int64))

    def lend(self, tensor: Tensor) -> Buffer:
        """An argument that XLA may write."""
        return self._writable(_importable(tensor))

    def lend_copy(self, tensor: Tensor) -> Buffer:
        """An argument that has a new value, but shares memory with another argument: XLA may write a copy."""
        return self._writable(tensor.detach().clone(memory_format=torch.contiguous_format))


class HeldArgument:
    """An argument that is most often the same tensor: a parameter. Its memory is imported once."""

    def __init__(self, execution: Execution) -> None:
        """Import for `execution`."""
        self._read = execution.read
        self._tensor: Tensor | None = None
        self._pointer = 0
        self._buffer: Buffer | None = None

    def __call__(self, tensor: Tensor) -> Buffer:
        """The buffer of `tensor`."""
        if tensor is self._tensor and tensor.data_ptr() == self._pointer and self._buffer is not None:
            return self._buffer
        buffer = self._read(tensor)
        if buffer.unsafe_buffer_pointer() == tensor.data_ptr():
            # A copy would not see what is written to the tensor later.
            self._tensor, self._pointer, self._buffer = tensor, tensor.data_ptr(), buffer
        return buffer


def _importable(tensor: Tensor) -> Tensor:
    """The tensor as XLA can take it, or a copy."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.is_contiguous():
        return tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def settle(tensor: Tensor, result: Buffer) -> None:
    """Give an argument its new contents, if XLA has not written them there.

    Expanded ones have none: they are among the results for what is a view of them, and nothing is written to them.
    """
    if result.unsafe_buffer_pointer() == tensor.data_ptr():
        return
    if not any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        tensor.copy_(exported(result))


def number(result: Buffer) -> int:
    """An integer that the function has computed."""
    return int(exported(result).item())


def program_of(
    executable: Executable,
    signature: Signature,
    *,
    in_place: bool,
    held: Collection[int] = (),
    overlapping: Sequence[Collection[int]] = (),
    offsets: Mapping[int, int] | None = None,
) -> Compiled:
    """A callable that takes the arguments and does what the program does.

    Args:
        executable: the compiled function.
        signature: what is around it.
        in_place: whether it was compiled with aliases; without, new contents are copied to the arguments.
        held: arguments that are most often the same tensor.
        overlapping: groups of arguments that share memory.
        offsets: where in their storages the arguments were when the signature was made; elsewhere now, windows onto
            their storages move along. 0 by default.
    """
    execution = Execution(executable)
    written = frozenset(signature.writes.values())
    shared = {i for group in overlapping if len(group) > 1 and written & set(group) for i in group}

    def importer(index: int, argument: Argument) -> Callable[..., Buffer]:
        lent = in_place and index in written
        if argument.tensor is None:
            return execution.read_number
        if index in shared:
            return execution.lend_copy if lent else execution.read_copy
        if lent:
            return execution.lend
        return HeldArgument(execution) if index in held else execution.read

    importers = tuple(importer(index, argument) for index, argument in enumerate(signature.arguments))
    return call_of(signature, Steps(importers, execution.run, exported, number, settle), offsets or {})
