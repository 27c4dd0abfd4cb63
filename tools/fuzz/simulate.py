"""Running a program statement by statement, to know that eager accepts it and that its results are well defined.

What is not well defined is left out: writes whose result depends on the order in which elements are written, sums that
depend on the order of their terms, and arithmetic with values on which backends are free to differ (subnormal numbers,
NaN, numbers that an integer type cannot hold).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from types import CodeType
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from vllm_ir.tools.fuzz import operators
from vllm_ir.tools.fuzz.footprint import overlap, overlaps_itself, same_window
from vllm_ir.tools.fuzz.program import Branch, Call, Program, Statement, Window, build, dtype_name
from vllm_ir.tools.fuzz.torch_internals import plain_conditions

_EXACT_BITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53, torch.complex64: 24}
"""Bits of the significand."""
_FRACTION = 8
"""Sums are exact for multiples of one over this."""

assert operators.NAMESPACE  # importing it defines the operators that statements call


class RejectedError(Exception):
    """A statement that eager refuses, or whose result is not defined."""


class Environment:
    """The values of one call, by name."""

    def __init__(self, arguments: Sequence[str], buffers: Sequence[str], call: Call) -> None:
        """The state at the beginning of the program."""
        self.module = nn.Module()
        self.namespace: dict[str, object] = {"torch": torch, "self": self.module}
        tensors = build(call)
        for name, tensor in zip((*buffers, *arguments), tensors, strict=True):
            if name.startswith("self."):
                self.module.register_buffer(name.removeprefix("self."), tensor)
            else:
                self.namespace[name] = tensor
        self.inputs = tensors
        self.arguments = tensors[len(buffers) :]
        self.donated: list[Tensor] = []

    def __getitem__(self, name: str) -> object:
        if name.startswith("self."):
            return getattr(self.module, name.removeprefix("self."))
        return self.namespace[name]

    def tensor(self, name: str) -> Tensor | None:
        """The tensor of that name; None for other values and unknown names."""
        try:
            value = self[name]
        except (KeyError, AttributeError):
            return None
        return value if isinstance(value, Tensor) else None

    def keep_buffers(self, before: Environment) -> None:
        """Start with the buffers that another call has left."""
        for name, buffer in before.module.named_buffers():
            setattr(self.module, name, buffer)

    def run(self, statement: Statement) -> None:
        """Execute a statement. Raises `RejectedError`."""
        operands = [self._operand(name) for name in statement.operands]
        tensors = [value for value in operands if isinstance(value, Tensor)]
        self._check_memory(statement, operands)
        if not statement.moves:
            _check_operands(statement, tensors)
        shapes = [value.shape for i in statement.writes if isinstance(value := operands[i], Tensor)]
        try:
            with warnings.catch_warnings(), torch.no_grad(), plain_conditions():
                warnings.simplefilter("ignore")
                exec(_code(statement.line()), self.namespace)  # the text is ours
        except Exception as error:  # whatever eager says
            raise RejectedError(f"eager: {error}") from error
        written = [cast(Tensor, operands[i]) for i in statement.writes]
        if [tensor.shape for tensor in written] != shapes and "out=" in statement.template:
            raise RejectedError("resizes its output")
        results = [value for value in map(self.tensor, statement.results) if value is not None]
        if not statement.moves and not all(map(is_plain, [*written, *results])):
            raise RejectedError("gives subnormal numbers or NaN")
        if any(map(has_subnormal, self._in_memory_of(written))):
            raise RejectedError("makes subnormal numbers of other bits")
        if statement.writes or not statement.moves:
            _check_conversions(tensors, [*written, *results])
        if any(result.numel() > 400 for result in results):
            raise RejectedError("large")
        self.donated += [cast(Tensor, operands[i]) for i in statement.donates]

    def _in_memory_of(self, written: Sequence[Tensor]) -> list[Tensor]:
        """All values that may have changed with those that were written."""
        addresses = {tensor.untyped_storage().data_ptr() for tensor in written}
        values = [*self.namespace.values(), *self.inputs, *self.module.buffers()]
        tensors = [value for value in values if isinstance(value, Tensor)]
        return [tensor for tensor in tensors if tensor.untyped_storage().data_ptr() in addresses]

    def define(self, branch: Branch) -> None:
        """Make a branch known."""
        lines = [f"def {branch.name}({', '.join(branch.parameters)}):"]
        lines += [f"    {statement.line()}" for statement in branch.body]
        lines.append(f"    return ({', '.join(branch.results)},)")
        exec("\n".join(lines), self.namespace)  # the text is ours

    def check_result(self, expression: str) -> None:
        """Evaluate what the program returns. Raises `RejectedError`."""
        try:
            value = cast(object, eval(expression, self.namespace))
        except Exception as error:  # whatever Python says
            raise RejectedError(f"the result: {error}") from error
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, Tensor) and any(overlap(leaf, donated) for donated in self.donated):
                raise RejectedError("returns what was given away")

    def _is_buffer(self, tensor: Tensor) -> bool:
        """Whether a module holds a tensor on this memory, which outlives the call."""
        return any(overlap(tensor, buffer) for buffer in self.module.buffers())

    def undefined(self) -> list[tuple[int, Window]]:
        """Windows of arguments, by their positions, that were given away."""
        found: list[tuple[int, Window]] = []
        for donated in self.donated:
            storage = donated.untyped_storage().data_ptr()
            for position, argument in enumerate(self.arguments):
                if argument.untyped_storage().data_ptr() == storage and storage != 0:
                    where = (tuple(donated.shape), donated.stride(), int(donated.storage_offset()))
                    found.append((position, Window(0, dtype_name(donated.dtype), *where)))
                    break
        return found

    def _operand(self, name: str) -> object:
        try:
            value = self[name]
        except (KeyError, AttributeError):
            raise RejectedError(f"{name} is not defined") from None
        if isinstance(value, Tensor) and any(overlap(value, donated) for donated in self.donated):
            raise RejectedError(f"{name} was given away")
        return value

    def _check_memory(self, statement: Statement, operands: Sequence[object]) -> None:
        """What is written must have one value in the end, whatever order its elements are written in."""
        for index in statement.donates:
            donated = operands[index]
            others = [value for other, value in enumerate(operands) if other != index and isinstance(value, Tensor)]
            if not isinstance(donated, Tensor) or overlaps_itself(donated) or self._is_buffer(donated):
                raise RejectedError("gives away what is not the program's")
            if any(overlap(donated, value) for value in others):
                raise RejectedError("gives away what it reads")
        for index in statement.writes:
            written = operands[index]
            if not isinstance(written, Tensor):
                raise RejectedError("writes what is no tensor")
            if overlaps_itself(written):
                raise RejectedError("writes memory that overlaps itself")
            for other, value in enumerate(operands):
                if other == index or not isinstance(value, Tensor) or not overlap(written, value):
                    continue
                if not statement.elementwise or not same_window(written, value):
                    raise RejectedError("writes what it reads")


@functools.lru_cache(maxsize=4096)
def _code(line: str) -> CodeType:
    return compile(line, "<statement>", "exec")


def _check_operands(statement: Statement, tensors: Sequence[Tensor]) -> None:
    if not all(map(is_plain, tensors)):
        raise RejectedError("computes with subnormal numbers or NaN")
    if statement.sums and not sum_exactly(tensors):
        raise RejectedError("adds numbers inexactly")


def _check_conversions(sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> None:
    """What becomes of numbers that an integer type does not hold is not defined."""
    if any(_is_integer(tensor) for tensor in destinations) and not all(map(_fits_integers, sources)):
        raise RejectedError("converts numbers that an integer type may not hold")


def _is_integer(tensor: Tensor) -> bool:
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype != torch.bool


def _fits_integers(tensor: Tensor) -> bool:
    if not tensor.dtype.is_floating_point or tensor.numel() == 0:
        return True
    return bool(tensor.min() >= 0) and bool(tensor.max() <= 100)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has neither NaN nor subnormal numbers."""
    return not has_subnormal(tensor) and not bool(tensor.isnan().any())


def has_subnormal(tensor: Tensor) -> bool:
    """Whether a tensor has subnormal numbers."""
    if tensor.dtype.is_complex:
        return has_subnormal(torch.view_as_real(tensor.resolve_conj()))
    if not tensor.dtype.is_floating_point or tensor.numel() == 0:
        return False
    size = tensor.abs()
    return bool(((size < torch.finfo(tensor.dtype).tiny) & (size != 0)).any())


def sum_exactly(tensors: Sequence[Tensor]) -> bool:
    """Whether sums of all elements, and of products of an element of each, are exact in any order."""
    product, total, bits = 1.0, 0.0, 64
    for tensor in tensors:
        values = torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor
        if not values.dtype.is_floating_point or values.numel() == 0:
            continue
        values = values.double()
        scaled = values * _FRACTION
        if bool((torch.signbit(values) & (values == 0)).any()) or not bool((scaled == scaled.round()).all()):
            return False
        size = float(scaled.abs().sum())
        product, total, bits = product * max(size, 1.0), total + size, min(bits, _EXACT_BITS[tensor.dtype])
    return max(product, total) < 2.0**bits


class Simulation:
    """The state of all calls of a program, statement by statement."""

    def __init__(self, arguments: Sequence[str], buffers: Sequence[str], calls: Sequence[Call]) -> None:
        """Start with a program's inputs."""
        self._inputs = (arguments, buffers, calls)
        self.body: list[Statement] = []
        self.branches: list[Branch] = []
        self.environments = self._start()

    def _start(self) -> list[Environment]:
        arguments, buffers, calls = self._inputs
        return [Environment(arguments, buffers, call) for call in calls]

    def define(self, branch: Branch) -> None:
        """Make a branch known to the statements behind it."""
        self.branches.append(branch)
        for environment in self.environments:
            environment.define(branch)

    def step(self, statement: Statement) -> None:
        """Run one more statement in all calls. Raises `RejectedError`, and is as before then."""
        try:
            for environment in self.environments:
                environment.run(statement)
        except RejectedError:
            self.environments = self._start()
            for environment in self.environments:
                for branch in self.branches:
                    environment.define(branch)
                for earlier in self.body:
                    environment.run(earlier)
            raise
        self.body.append(statement)


def check(program: Program) -> list[list[tuple[int, Window]]]:
    """Check that a program is accepted by eager and well defined. Raises `RejectedError`.

    Returns, for each call, the windows of arguments that are given away.
    """
    simulation = Simulation(program.arguments, program.buffers, program.calls)
    for branch in program.used_branches():
        simulation.define(branch)
    before: Environment | None = None
    for environment in simulation.environments:
        if before is not None:
            environment.keep_buffers(before)
        for statement in program.body:
            environment.run(statement)
        environment.check_result(program.returns or "None")
        before = environment
    return [environment.undefined() for environment in simulation.environments]
