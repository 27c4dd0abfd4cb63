"""Alias sets: in which storage each value of a function is, and which window of it.

At buffer level a storage is an argument or an allocation. At tensor level it is what a value would occupy if nothing
were copied: views of values lie in the memory of their base, the result of a functional operator is new memory. Which
operators look at memory of their operands, and where, comes from their schemas and from running them without data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from vllm_ir.conversions.analysis.regions import covers, may_overlap
from vllm_ir.conversions.analysis.windows import ViewWindows, whole_window
from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.torch.constant import ConstantOp
from vllm_ir.dialects.vllm_ir.function import DONATED, MUTATED, STORAGE, FuncOp
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, RelayoutOp, ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload
from vllm_ir.frontends.fx.types import is_shaped, is_tensor, static_window


@dataclass(eq=False)
class Storage:
    """Memory that values of one alias set share."""

    root: SSAValue
    """The argument, allocation or value that brings it into the function."""
    mutated: bool = False
    donated: bool = False
    values: list[SSAValue] = field(default_factory=list[SSAValue])
    """All values in it, in program order."""

    @property
    def is_argument(self) -> bool:
        """Whether the caller can see it."""
        return isinstance(self.root, BlockArgument)

    @property
    def is_constant(self) -> bool:
        """Whether it holds a constant, which is the same at every call."""
        return isinstance(self.root.owner, ConstantOp)


@dataclass(frozen=True)
class Place:
    """Where a value is: a storage, and the window of it; None if the window is not known."""

    storage: Storage
    window: BufferType | None
    within: tuple[BufferType, ...] = ()
    """Windows of dynamic size that enclose it: a view lies in its base, whatever the sizes are."""

    def overlaps(self, other: Place) -> bool:
        """Whether two values may have a byte in common."""
        if self.storage is not other.storage:
            return False
        ours, theirs = self._enclosing(), other._enclosing()
        return all(may_overlap(one, another) for one in ours for another in theirs)

    def is_within(self, window: BufferType) -> bool:
        """Whether every byte of a value surely lies in a window."""
        return any(covers(window, enclosing) for enclosing in self._enclosing())

    def _enclosing(self) -> Sequence[BufferType]:
        return self.within if self.window is None else (self.window, *self.within)

    def part(self, window: BufferType | None) -> Place:
        """The place of a view of something here."""
        static = window is not None and static_window(window) is not None
        if self.window is None or static:
            return Place(self.storage, window, self.within)
        return Place(self.storage, window, (*self.within, self.window))


def viewed_overload(op: Operation) -> Overload | None:
    """The operator, if `op` is a call or view whose results may be in the memory of its first operand."""
    if not isinstance(op, CallOp | ViewOp) or op.target.startswith("python."):
        return None
    first = op.args.data[0] if op.args.data else None
    if not isinstance(first, OperandAttr) or first.index.data != 0:
        return None
    target = resolve(op.target)
    return target if is_overload(target) and op_info(target).is_view else None


class AliasSets:
    """The places of all tensors and buffers of a function, as they are in its present text.

    Passes that plan to change the function may `put` values where they will be; whatever is asked for later follows.
    """

    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self.windows = ViewWindows(function)
        self.places: dict[SSAValue, Place] = {}
        self.storages: list[Storage] = []
        self._add_arguments()

    def run(self) -> AliasSets:
        """Place the results of all operations."""
        for op in self.function.block.ops:
            self.visit(op)
        return self

    def _add_arguments(self) -> None:
        shared: dict[int, Storage] = {}
        for index, argument in enumerate(self.function.block.args):
            kind, attributes = argument.type, self.function.argument_attributes(index)
            if not is_shaped(kind):
                continue
            number = attributes.get(STORAGE)
            known = shared.get(number.value.data) if isinstance(number, IntegerAttr) else None
            storage = known or self.new_storage(argument)
            if isinstance(number, IntegerAttr):
                shared[number.value.data] = storage
            storage.mutated |= MUTATED in attributes
            storage.donated |= DONATED in attributes
            self.put(argument, Place(storage, kind if isinstance(kind, BufferType) else whole_window(kind)))

    def new_storage(self, root: SSAValue) -> Storage:
        """A storage of its own for a value."""
        storage = Storage(root)
        self.storages.append(storage)
        return storage

    def put(self, value: SSAValue, place: Place) -> None:
        """Place a value."""
        self.places[value] = place
        place.storage.values.append(value)

    def alias(self, value: SSAValue, other: SSAValue) -> None:
        """Place a value where another one is."""
        self.put(value, self.places[other])

    def visit(self, op: Operation) -> None:
        """Place the results of an operation."""
        match op:
            case ReadOp():
                self.alias(op.result, op.buffer)
            case RelayoutOp():
                self.alias(op.result, op.value)
            case AllocOp():
                self.fresh(op.buffer)
            case _:
                for result, place in self._placed(op):
                    if place is not None:
                        self.put(result, place)
                    elif is_shaped(result.type):
                        self.fresh(result)

    def fresh(self, result: SSAValue) -> None:
        """Place a value in new memory."""
        kind = result.type
        window = whole_window(kind) if is_tensor(kind) else kind
        self.put(result, Place(self.new_storage(result), window if isinstance(window, BufferType) else None))

    def _placed(self, op: Operation) -> Iterator[tuple[OpResult, Place | None]]:
        """Results with the place that they have in the memory of an operand; None for new memory."""
        if isinstance(op, CallOp) and op.returns is not None:
            for result, index in zip(op.results, op.return_indices, strict=True):
                yield result, self.places[op.operands[index]] if index >= 0 else None
            return
        for index, result in enumerate(op.results):
            yield result, self.viewed(op, index)

    def viewed(self, op: Operation, index: int, base: Place | None = None) -> Place | None:
        """The place of result `index` if `op` is a view of something at `base`; None if the result is new memory.

        By default, `base` is where operand 0 is.
        """
        overload = viewed_overload(op)
        if overload is None or not isinstance(op, CallOp | ViewOp):
            return None
        base = base or self.places[op.operands[0]]
        part = Place(base.storage, None).part if op_info(overload).places_windows else base.part
        if isinstance(kind := op.results[index].type, BufferType):
            return part(kind)
        if base.window is None:
            return part(None)
        windows = self.windows.of(overload, op.args, op.kwargs, base.window, op.operands[1:])
        if windows is None or len(windows) != len(op.results):
            return part(None)
        return None if (window := windows[index]) is None else part(window)


__all__ = ["AliasSets", "Place", "Storage", "viewed_overload"]
