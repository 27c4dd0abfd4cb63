"""One side of a fusion as a graph of the IR: what is compared with programs, and what takes their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

from torch import Tensor
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.transforms.dead_code_elimination import DeadCodeElimination
from xdsl.utils.exceptions import PassFailedException, VerifyException

from vllm_ir.conversions.eliminate_no_ops import EliminateNoOpsPass
from vllm_ir.conversions.fusion.copies import DropReturnedCopiesPass, with_copies
from vllm_ir.conversions.fusion.fusion import AnyString, Fusion
from vllm_ir.conversions.trace import Decompositions, Examples, Traced, trace_callable
from vllm_ir.dialects.torch.arguments import OperandAttr, TupleAttr, children
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects
from vllm_ir.frontends.distributed.group_names import group_of, is_collective
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.marked_sizes import types_of_marked
from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import is_shaped, is_tensor

Key: TypeAlias = str
Path: TypeAlias = tuple[int | str, ...]
"""Where an attribute is: the number of an argument or the name of a property, then places in lists."""
Source: TypeAlias = tuple[int, int]
"""Where a tensor of a pattern comes from: the numbers of an operation and of its result, or `ARGUMENT` and a number."""
ARGUMENT = -1


SIMPLIFYING = (EliminateNoOpsPass(), DeadCodeElimination())
"""What programs should have gone through, too. What is not there need not be matched."""
_EFFECTS = frozenset(("external", "reads", "writes"))
"""Properties of a call that does more than to compute values."""


def key_of(op: Operation) -> Key:
    """What an operation is, arguments and types aside: operations with other keys never match."""
    return op.target if type(op) is CallOp else op.name


def is_matchable(op: Operation) -> bool:
    """Whether an operation computes values from values and does nothing else; other ranks may take part in it."""
    if isinstance(op, CallOp):
        if not _EFFECTS.isdisjoint(op.properties) and not _only_waits(op):
            return False
        return "random" not in op.properties or _drops_nothing(op)
    return _is_high_level(type(op)) and all(is_tensor(operand.type) for operand in op.operands)


@cache
def _is_high_level(kind: type[Operation]) -> bool:
    return bool(kind.get_traits_of_type(OperandEffects))


def _only_waits(op: CallOp) -> bool:
    """Whether the one effect of a call is that of a collective on values."""
    return is_collective(op) and op.reads is None and op.writes is None


def acts_outside(op: Operation) -> bool:
    """Whether an operation does something outside the memory of its operands, which keeps its place among such."""
    return (isinstance(op, CallOp) and op.external is not None) or is_collective(op)


def _drops_nothing(op: CallOp) -> bool:
    """Whether a call states that it drops elements out with probability 0, for which it draws no random numbers."""
    target = resolve(op.target)
    if target is None or not is_overload(target):
        return False
    names = [argument.name for argument in op_info(target).arguments]
    given = {**dict(zip(names, op.args.data, strict=False)), **(op.kwargs.data if op.kwargs else {})}
    probability = given.get("dropout_p")
    return isinstance(probability, FloatAttr) and probability.value.data == 0.0


def _is_size(op: Operation) -> bool:
    return bool(op.results) and not any(is_shaped(result.type) for result in op.results)


def trees_of(op: Operation) -> dict[int | str, Attribute]:
    """The attributes that say what an operation computes, by number of the argument or name."""
    if isinstance(op, CallOp):
        return dict(enumerate(op.arguments()))
    return {name: value for name, value in op.properties.items() if name != "donated"}


def leaves_of(op: Operation) -> Iterator[tuple[Path, Attribute]]:
    """The leaves of these attributes, each with its place."""
    for start, tree in trees_of(op).items():
        yield from _leaves((start,), tree)


def _leaves(path: Path, tree: Attribute) -> Iterator[tuple[Path, Attribute]]:
    if (items := items_of(tree)) is None:
        yield path, tree
    else:
        for index, item in enumerate(items):
            yield from _leaves((*path, index), item)


def items_of(tree: Attribute) -> list[Attribute] | None:
    """The items of a list or tuple; None for anything else."""
    # Asking the type itself: `isinstance` of an attribute asks its abstract bases, which most of the time went into.
    return list(children(tree)) if type(tree) in (ArrayAttr, TupleAttr) else None


def tensors_of(op: Operation) -> list[SSAValue]:
    """The tensors that an operation takes, in the order of its arguments; one that is given twice is there twice."""
    if not isinstance(op, CallOp):
        return list(op.operands)
    found: list[SSAValue] = []
    _add_tensors(op.arguments(), op.operands, found)
    return found


def _add_tensors(trees: Iterable[Attribute], operands: Sequence[SSAValue], found: list[SSAValue]) -> None:
    for tree in trees:
        if type(tree) is OperandAttr:
            operand = operands[tree.index.data]
            if is_shaped(operand.type):
                found.append(operand)
        elif (items := items_of(tree)) is not None:
            _add_tensors(items, operands, found)


@dataclass(frozen=True)
class Node:
    """An operation of a pattern, with what matching asks of it."""

    number: int
    """Its place among the operations of the pattern."""
    op: Operation
    key: Key
    tensors: tuple[Source, ...]
    parameters: tuple[tuple[Path, int], ...]
    """Places of attributes that are parameters of the fusion, and their numbers."""


class Side:
    """`before` or `after` of a fusion, traced on operands of certain types."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.arguments = list(traced.function.block.args)
        self.outputs: list[SSAValue] = traced.results
        terminator = traced.function.terminator
        self.operations = [op for op in traced.function.block.ops if op is not terminator and not _is_size(op)]
        """What computes tensors. Integers are compared by what they are, however they were computed."""

    @cached_property
    def sources(self) -> dict[SSAValue, Source]:
        """Where each value comes from."""
        found: dict[SSAValue, Source] = {argument: (ARGUMENT, number) for number, argument in enumerate(self.arguments)}
        for number, op in enumerate(self.operations):
            found.update((result, (number, index)) for index, result in enumerate(op.results))
        return found

    @cached_property
    def wiring(self) -> list[tuple[Operation, Key, tuple[Source, ...]]]:
        """Each operation, what it is, and the tensors that it takes."""
        return [(op, key_of(op), tuple([self.sources[value] for value in tensors_of(op)])) for op in self.operations]

    @cached_property
    def groups(self) -> list[str]:
        """The groups of its collectives, in their order."""
        return [group for op in self.operations if (group := group_of(op)) is not None]

    @cached_property
    def problem(self) -> str | None:
        """Why this is no pattern; None if it is one."""
        for output in self.outputs:
            if output in self.arguments:
                return "it returns an argument as it is"
        if any(final is not None for final in self.traced.finals):
            return "it writes its arguments"
        for op in self.operations:
            if not is_matchable(op):
                return f"{key_of(op)} does more than to compute values"
        return None if self.outputs and self.operations else "it computes nothing"


class Variant:
    """`before` of a fusion for one example: the shape of the graph, and where tensors and parameters are.

    Of the types of values nothing is kept: whether they are right is known when `before` is traced on those of a site.
    """

    def __init__(self, fusion: Fusion, arguments: tuple[object, ...], decompositions: Decompositions | None) -> None:
        self.fusion = fusion
        self.arguments = arguments
        self.decompositions = decompositions
        self.positions = [index for index, argument in enumerate(arguments) if isinstance(argument, Tensor)]
        """Numbers of the arguments that are tensors."""
        self.parameters = [index for index, argument in enumerate(arguments) if is_parameter(argument)]
        """Numbers of the arguments that are parameters."""
        self.kinds = list(types_of_marked(argument for argument in arguments if isinstance(argument, Tensor)))
        """Types of the tensors of the example."""
        side = self._traced_example("before", fusion.before)
        if side.problem is not None:
            raise ValueError(f"fusion {fusion.name!r}: before is no pattern: {side.problem}")
        self.side = side
        self.nodes = [self._node(number, *wired) for number, wired in enumerate(side.wiring)]
        self.outputs = [side.sources[output] for output in side.outputs]
        """Where the results come from."""
        self.root = self._root()
        """The number of the node that matching begins with: the output that depends on most operations."""
        taken = {index for node in self.nodes for number, index in node.tensors if number == ARGUMENT}
        for index, number in enumerate(self.positions):
            if index not in taken:
                raise ValueError(
                    f"fusion {fusion.name!r}: argument {number} is a tensor that no operation of before takes"
                )
        found = {number for node in self.nodes for _, number in node.parameters}
        for number in self.parameters:
            if number not in found:
                raise ValueError(
                    f"fusion {fusion.name!r}: argument {number} is {arguments[number]!r}, which no operation of before "
                    "has as an attribute; give it as a string or a function if it is none"
                )

    def example_of_after(self) -> Side:
        """`after` on the example; raises `ValueError` if it does not take it."""
        return self._traced_example("after", self.fusion.after)

    def _traced_example(self, which: str, function: Callable[..., object]) -> Side:
        try:
            return self.trace(function, self.kinds, {}, Examples())
        except (FxImportError, PassFailedException, VerifyException) as error:
            raise ValueError(
                f"fusion {self.fusion.name!r}: {which} does not take its own example: {error_summary(error)}"
            ) from error

    def _root(self) -> int:
        behind: list[set[int]] = []
        for node in self.nodes:
            operands = {number for number, _ in node.tensors if number != ARGUMENT}
            behind.append(operands.union(*(behind[number] for number in operands)))
        return max((number for number, _ in self.outputs), key=lambda number: (len(behind[number]), number))

    def trace(
        self,
        function: Callable[..., object],
        kinds: Sequence[TensorType[Attribute]],
        parameters: Mapping[int, object],
        examples: Examples,
    ) -> Side:
        """A side on operands of these types, with other values of parameters; raises what tracing raises."""

        def call(*operands: object) -> object:
            return with_copies(function(*self.filled(operands, parameters)))

        passes = (DropReturnedCopiesPass(), *SIMPLIFYING)
        return Side(trace_callable(call, kinds, examples, self.decompositions, pure=True, passes=passes))

    def filled(self, tensors: Sequence[object], parameters: Mapping[int, object]) -> tuple[object, ...]:
        """The arguments with these tensors and parameters in their places."""
        arguments = list(self.arguments)
        for position, tensor in zip(self.positions, tensors, strict=True):
            arguments[position] = tensor
        for position, value in parameters.items():
            arguments[position] = value
        return tuple(arguments)

    def structure(self) -> object:
        """Equal for variants that match the same programs and have the same arguments beside tensors and numbers."""
        graph = tuple((node.key, node.tensors, node.parameters, len(node.op.results)) for node in self.nodes)
        rest = tuple(a for i, a in enumerate(self.arguments) if i not in self.positions and i not in self.parameters)
        return graph, tuple(self.outputs), tuple(self.positions), rest

    def _node(self, index: int, op: Operation, key: Key, tensors: tuple[Source, ...]) -> Node:
        places = tuple(
            (path, number)
            for path, leaf in leaves_of(op)
            for number in self.parameters
            if _is_argument(leaf, self.arguments[number])
        )
        return Node(index, op, key, tensors, places)


def is_parameter(argument: object) -> bool:
    """Whether an argument of a fusion is a number or string that any other may stand in for."""
    return isinstance(argument, int | float | AnyString) and not isinstance(argument, bool)


def _is_argument(leaf: Attribute, argument: object) -> bool:
    if isinstance(argument, str):
        return isinstance(leaf, StringAttr) and leaf.data == argument
    return (
        isinstance(leaf, IntegerAttr | FloatAttr)
        and leaf.value.data == argument
        and (isinstance(leaf, FloatAttr) == isinstance(argument, float))
    )
