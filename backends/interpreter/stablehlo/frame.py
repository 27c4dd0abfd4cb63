"""Running blocks of operations.

A function runs as a generator, which pauses where its process has to exchange something with others. Most operations
are functions from arrays to arrays (`Evaluator`); those that run regions which may pause are generators (`Stepper`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import DYNAMIC_INDEX, FileLineColLoc, LocationAttr, NameLoc
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import InterpretationError

from vllm_ir.backends.interpreter.stablehlo.values import Array, described, element_of, tensor_type
from vllm_ir.dialects.messages import result_text
from vllm_ir.dialects.stablehlo import ConstantOp, ReturnOp


@dataclass(frozen=True)
class Exchange:
    """What a process waits for: the values of all processes of its group, in the order of the group."""

    op: Operation
    group: tuple[int, ...]
    values: Sequence[Array]


Given: TypeAlias = Sequence[Sequence[Array]]
"""The answer to an `Exchange`."""
Steps: TypeAlias = Generator[Exchange, Given | None, Sequence[Array]]
Evaluator: TypeAlias = Callable[["Frame", Any, Sequence[Array]], "Array | list[Array]"]
Stepper: TypeAlias = Callable[["Frame", Any, Sequence[Array]], Steps]
# Any: each takes the class of operation that it is listed under.


@dataclass(frozen=True)
class Program:
    """What all processes have in common."""

    functions: Mapping[str, func.FuncOp]
    evaluators: Mapping[type[Operation], Evaluator]
    steppers: Mapping[type[Operation], Stepper]
    elementwise: Collection[type[Operation]]
    """Operations of `evaluators` that do the same to each element, whatever the shape is."""
    processes: int
    partitioned: bool
    """Whether processes are numbered as partitions, not as replicas."""
    whole_windows: bool
    """Whether `scatter` leaves out a window that does not fit as a whole, as XLA does."""
    elementwise_regions: dict[Region, bool] = field(default_factory=dict[Region, bool])
    """Whether a region of scalars consists of elementwise operations and constants."""


class Frame:
    """One call of a function by one process."""

    def __init__(self, program: Program, process: int) -> None:
        """A frame without values."""
        self.program = program
        self.process = process
        self._values: dict[SSAValue, Array] = {}

    def call(self, function: func.FuncOp, arguments: Sequence[Array]) -> Steps:
        """Run a function in a frame of its own."""
        return Frame(self.program, self.process).run(function.body.block, arguments)

    def run(self, block: Block, arguments: Sequence[Array], *, lifted: bool = False) -> Steps:
        """Run the operations of a block; gives what its terminator returns.

        `lifted` is for blocks of scalars that are run on arrays, for all elements at once: shapes are not checked.
        """
        values = self._values
        values.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            operands = [values[operand] for operand in op.operands]
            if isinstance(op, ReturnOp | func.ReturnOp):
                return operands
            try:
                results = yield from self._results(op, operands)
                for result, value in zip(op.results, results, strict=True):
                    check(value, result.type, result_text(op, result.index), lifted=lifted)
                    values[result] = value
            except (ValueError, TypeError, IndexError) as error:
                given = ", ".join(map(described, operands))
                raise failure(op, f"{' '.join(str(error).split())} (operands: {given or 'none'})") from error
        raise InterpretationError("a block does not return")

    def _results(self, op: Operation, operands: Sequence[Array]) -> Steps:
        if (stepper := self.program.steppers.get(type(op))) is not None:
            return (yield from stepper(self, op, operands))
        if (evaluator := self.program.evaluators.get(type(op))) is None:
            raise failure(op, "the evaluator does not know this operation")
        found = evaluator(self, op, operands)
        return list(map(np.asarray, found if isinstance(found, list) else [found]))

    def apply(self, region: Region, arguments: Sequence[Array]) -> list[Array]:
        """What a region of scalars gives for each element of arrays that have one shape."""
        shape = np.broadcast_shapes(*(argument.shape for argument in arguments))
        if self._is_elementwise(region):
            results = finished(self.run(region.block, arguments, lifted=True))
            return [np.broadcast_to(result, shape) for result in results]
        given = [np.broadcast_to(argument, shape) for argument in arguments]
        last = region.block.last_op
        kinds = last.operand_types if last is not None else ()
        made = [np.empty(shape, element_of(tensor_type(kind).element_type)) for kind in kinds]
        for place in np.ndindex(*shape):
            results = finished(self.run(region.block, [np.asarray(argument[place]) for argument in given]))
            for array, result in zip(made, results, strict=True):
                array[place] = result
        return made

    def _is_elementwise(self, region: Region) -> bool:
        known = self.program.elementwise_regions
        if region not in known:
            known[region] = all(
                isinstance(op, ConstantOp | ReturnOp) or type(op) in self.program.elementwise for op in region.block.ops
            )
        return known[region]


def finished(steps: Steps) -> Sequence[Array]:
    """What a generator that must not pause gives."""
    try:
        waiting = next(steps)
    except StopIteration as end:
        return end.value
    raise failure(waiting.op, "collectives have no meaning inside of another operation's region")


def check(array: Array, kind: Attribute, name: str, *, lifted: bool = False) -> None:
    """An array is a value of a tensor type, `ValueError` if not; `lifted` checks only its elements."""
    kind = tensor_type(kind)
    shape = kind.get_shape()
    same_shape = len(shape) == array.ndim and all(
        size in (DYNAMIC_INDEX, actual) for size, actual in zip(shape, array.shape, strict=True)
    )
    if array.dtype != element_of(kind.element_type) or not (lifted or same_shape):
        raise ValueError(f"{name} of type {kind} is {described(array)}")


def failure(op: Operation, reason: str) -> InterpretationError:
    """The error for an operation that cannot be evaluated, with the place in the user's program."""
    location: Attribute = op.location
    while isinstance(location, NameLoc) and isinstance(location.location, LocationAttr):
        location = location.location
    where = f"{location.filename.data}:{location.line.data}: " if isinstance(location, FileLineColLoc) else ""
    return InterpretationError(f"{where}{op.name}: {reason}")
