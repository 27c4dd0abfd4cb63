"""Calls of compiled pure functions: what goes in, what becomes of the arguments, and what the caller gets back.

A pure function computes values. `call_of` writes the straight-line code around it: it hands over the arguments, gives
those that the program writes their new contents, and makes the outputs, among them arguments and windows onto them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from vllm_ir.backends.stablehlo.signature import Alias, Output, Plain, Result, Signature, TensorFacts, View
from vllm_ir.frontends.ops.memory import overlaps_itself

Compiled = Callable[..., object]


@dataclass(frozen=True)
class Steps:
    """What is particular to one kind of compiled function."""

    importers: Sequence[Callable[..., object]]
    """For each argument, what makes the function's operand of it."""
    run: Callable[..., Sequence[object]]
    """Takes the list of operands; its results, which are there when it returns."""
    tensor: Callable[..., Tensor]
    """The tensor of a result, which nobody else has."""
    number: Callable[..., int]
    """The integer of a result."""
    settle: Callable[..., None]
    """Gives a tensor the contents of a result."""


@dataclass(frozen=True)
class Strides:
    """Gives a value the strides that it has in eager mode."""

    tensor: TensorFacts

    def __call__(self, value: Tensor) -> Tensor:
        """The value, or a copy if it has other strides."""
        return value if value.stride() == self.tensor.strides else self.copy(value)

    def copy(self, value: Tensor) -> Tensor:
        """A copy with these strides."""
        copy = torch.empty_strided(self.tensor.shape, self.tensor.strides, dtype=self.tensor.dtype, device=value.device)
        if not overlaps_itself(copy):
            return copy.copy_(value)
        # Elements that are the same memory have the same value: what is expanded is, and so are windows that overlap.
        memory = copy.as_strided((copy.untyped_storage().nbytes() // copy.itemsize,), (1,), 0)
        positions = torch.arange(len(memory), device=value.device).as_strided(copy.shape, copy.stride())
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
        return torch.empty(0, dtype=dtype, device=base.device).set_(base.untyped_storage(), offset, shape, strides)


def call_of(signature: Signature, steps: Steps, offsets: Mapping[int, int]) -> Compiled:
    """A callable that takes the program's arguments, one by one, and does what the program does.

    `offsets` are where in their storages the arguments were when the signature was made, 0 where it says nothing;
    elsewhere now, windows onto their storages move along.
    """
    return _CallWriter(signature, steps).write(offsets)


class _CallWriter:
    """Writes the straight-line code of a call."""

    def __init__(self, signature: Signature, steps: Steps) -> None:
        self._signature = signature
        self._steps = steps
        self._constants: dict[str, object] = {}
        self._lines: list[str] = []

    def write(self, offsets: Mapping[int, int]) -> Compiled:
        """The code, compiled."""
        signature, steps = self._signature, self._steps
        names = [f"a{index}" for index in range(len(signature.arguments))]
        operands = [f"{self._constant(take)}({name})" for take, name in zip(steps.importers, names, strict=True)]
        self._lines.append(f"r = {self._constant(steps.run)}([{', '.join(operands)}])")
        # Results first: they are in memory of their own, whatever is written to arguments after them.
        outputs = [self._output(i, output, offsets) for i, output in enumerate(signature.outputs)]
        for result, argument in signature.writes.items():
            self._lines.append(f"{self._constant(steps.settle)}(a{argument}, r[{result}])")
        self._lines.append(f"return ({''.join(output + ', ' for output in outputs)})")
        source = f"def call({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in self._lines)
        scope = dict(self._constants)
        exec(compile(source, "<call of a vllm_ir program>", "exec"), scope)
        return cast(Compiled, scope["call"])

    def _constant(self, value: object) -> str:
        name = f"k{len(self._constants)}"
        self._constants[name] = value
        return name

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
                take: object = self._steps.number if output.tensor is None else self._steps.tensor
                self._lines.append(f"{name} = {self._constant(take)}(r[{output.index}])")
                if output.tensor is not None and not output.tensor.is_contiguous:
                    self._lines.append(f"{name} = {self._constant(Strides(output.tensor))}({name})")
                return name
