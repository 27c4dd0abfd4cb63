"""Running a compiled function on tensors: their memory goes to XLA and back without copies.

An argument that a result aliases is imported so that XLA may write it, and the result is then the same memory: nothing
is copied, and whoever has the tensor, or a view of it, sees the new contents. That holds for tensors that are
contiguous and aligned; others, and arguments whose memory overlaps that of another one, are copied in and written back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from vllm_ir.backends.stablehlo.jaxlib_calls import Buffer, Executable, Importer, exported
from vllm_ir.backends.stablehlo.signature import Alias, Argument, Output, Plain, Result, Signature, TensorFacts, View
from vllm_ir.frontends.ops.memory import overlaps_itself

ALIGNMENT = 64
"""Bytes. XLA CPU's code may use aligned loads of this size; PyTorch allocates so, but a slice may start anywhere."""

Compiled = Callable[..., object]


class Execution:
    """Runs a compiled function. Its methods are the steps of the straight-line code of `program_of`."""

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


@dataclass(frozen=True)
class Strides:
    """Copies a value to the strides that eager mode gives it."""

    tensor: TensorFacts

    def __call__(self, value: Tensor) -> Tensor:
        """The copy."""
        copy = torch.empty_strided(self.tensor.shape, self.tensor.strides, dtype=self.tensor.dtype)
        if not overlaps_itself(copy):
            return copy.copy_(value)
        # Elements that are the same memory have the same value: what is expanded is, and so are windows that overlap.
        memory = copy.as_strided((copy.untyped_storage().nbytes() // copy.itemsize,), (1,), 0)
        positions = torch.arange(len(memory)).as_strided(copy.shape, copy.stride())
        memory[positions] = value
        return copy


@dataclass(frozen=True)
class Window:
    """Makes a window onto the storage of an argument."""

    tensor: TensorFacts
    offset: int
    """In elements of the window, from the start of the storage that the argument had when this was found out."""
    base_offset: int
    """Where in that storage the argument was, in elements of its own."""

    def __call__(self, base: Tensor) -> Tensor:
        """The window; if the argument is elsewhere in its storage now, the window is at the same distance from it."""
        moved = (int(base.storage_offset()) - self.base_offset) * base.itemsize
        shape, strides, dtype = self.tensor.shape, self.tensor.strides, self.tensor.dtype
        offset = self.offset + moved // dtype.itemsize
        if dtype == base.dtype:
            return base.as_strided(shape, strides, offset)
        return torch.empty(0, dtype=dtype).set_(base.untyped_storage(), offset, shape, strides)


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
    writer = _ProgramWriter(Execution(executable), signature, in_place, frozenset(held), overlapping)
    return writer.write(offsets or {})


class _ProgramWriter:
    """Writes the straight-line code of a call."""

    def __init__(
        self,
        execution: Execution,
        signature: Signature,
        in_place: bool,
        held: frozenset[int],
        overlapping: Sequence[Collection[int]],
    ) -> None:
        self._execution = execution
        self._signature = signature
        self._in_place = in_place
        self._held = held
        self._written = frozenset(signature.writes.values())
        self._shared = {i for group in overlapping if len(group) > 1 and self._written & set(group) for i in group}
        self._constants: dict[str, object] = {}
        self._lines: list[str] = []

    def write(self, offsets: Mapping[int, int]) -> Compiled:
        """The code, compiled."""
        signature = self._signature
        names = [f"a{index}" for index in range(len(signature.arguments))]
        buffers = [self._import(i, argument) for i, argument in enumerate(signature.arguments)]
        self._lines.append(f"r = {self._constant(self._execution.run)}([{', '.join(buffers)}])")
        # Results first: they are in memory of their own, whatever is written to arguments after them.
        outputs = [self._output(i, output, offsets) for i, output in enumerate(signature.outputs)]
        for result, argument in signature.writes.items():
            self._lines.append(f"{self._constant(settle)}(a{argument}, r[{result}])")
        self._lines.append(f"return ({''.join(output + ', ' for output in outputs)})")
        source = f"def call({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in self._lines)
        scope = dict(self._constants)
        exec(compile(source, "<vllm_ir_xla call>", "exec"), scope)
        return cast(Compiled, scope["call"])

    def _constant(self, value: object) -> str:
        name = f"k{len(self._constants)}"
        self._constants[name] = value
        return name

    def _import(self, index: int, argument: Argument) -> str:
        """The text of an argument's buffer."""
        execution = self._execution
        lent = self._in_place and index in self._written
        if argument.tensor is None:
            take: object = execution.read_number
        elif index in self._shared:
            take = execution.lend_copy if lent else execution.read_copy
        elif lent:
            take = execution.lend
        else:
            take = HeldArgument(execution) if index in self._held else execution.read
        return f"{self._constant(take)}(a{index})"

    def _output(self, position: int, output: Output, offsets: Mapping[int, int]) -> str:
        """The text of an output."""
        match output:
            case Plain():
                return self._constant(output.value)
            case Alias():
                return f"a{output.argument}"
            case View():
                base, facts = f"a{output.argument}", output.tensor
                window = Window(facts, output.offset, offsets.get(output.argument, 0))
                return f"{self._constant(window)}({base})"
            case Result():
                name = f"o{position}"
                take: object = number if output.tensor is None else exported
                self._lines.append(f"{name} = {self._constant(take)}(r[{output.index}])")
                if output.tensor is not None and not output.tensor.is_contiguous:
                    self._lines.append(f"{name} = {self._constant(Strides(output.tensor))}({name})")
                return name
