"""One side of a fusion as a graph of the IR: what is compared with programs, and what takes their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

from torch import Tensor
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import PassFailedException, VerifyException

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.conversions.trace import Decompositions, Examples, Traced, trace_callable
from vllm_ir.dialects.torch.arguments import OperandAttr, TupleAttr, children
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import TypeCache, is_shaped, is_tensor

Key: TypeAlias = str
Path: TypeAlias = tuple[int | str, ...]
"""Where an attribute is: the number of an argument or the name of a property, then places in lists."""


def key_of(op: Operation) -> Key:
    """What an operation is, arguments and types aside: operations with other keys never match."""
    return op.target if isinstance(op, CallOp) else op.name


def is_matchable(op: Operation) -> bool:
    """Whether an operation computes values from values and does nothing else."""
    if isinstance(op, CallOp):
        quiet = op.random is None or _drops_nothing(op)
        return quiet and op.external is None and op.reads is None and op.writes is None
    return op.has_trait(OperandEffects) and all(is_tensor(operand.type) for operand in op.operands)


def _drops_nothing(op: CallOp) -> bool:
    """Whether a call states that it drops elements out with probability 0, for which it draws no random numbers."""
    target = resolve(op.target)
    if target is None or not is_overload(target):
        return False
    names = [argument.name for argument in op_info(target).arguments]
    given = {**dict(zip(names, op.args.data, strict=False)), **(op.kwargs.data if op.kwargs else {})}
    probability = given.get("dropout_p")
    return isinstance(probability, FloatAttr) and probability.value.data == 0.0


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
    return list(children(cast("Attribute", tree))) if isinstance(tree, ArrayAttr | TupleAttr) else None


def tensors_of(op: Operation) -> list[SSAValue]:
    """The tensors that an operation takes, in the order of its arguments; one that is given twice is there twice."""
    if not isinstance(op, CallOp):
        return list(op.operands)
    operands = [op.operands[leaf.index.data] for _, leaf in leaves_of(op) if isinstance(leaf, OperandAttr)]
    return [operand for operand in operands if is_shaped(operand.type)]


@dataclass(frozen=True)
class Node:
    """An operation of a pattern, with what matching asks of it."""

    op: Operation
    key: Key
    tensors: tuple[SSAValue, ...]
    parameters: tuple[tuple[Path, int], ...]
    """Places of attributes that are parameters of the fusion, and their numbers."""


class Side:
    """`before` or `after` of a fusion, traced on operands of certain types."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.arguments = list(traced.function.block.args)
        self.outputs: list[SSAValue] = traced.results
        self.operations = [op for op in traced.function.block.ops if op is not traced.function.terminator]

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
        """Numbers of the arguments that are numbers."""
        types = TypeCache()
        self.kinds = [types.tensor(argument) for argument in arguments if isinstance(argument, Tensor)]
        """Types of the tensors of the example."""
        side = self._traced_example("before", fusion.before)
        if side.problem is not None:
            raise ValueError(f"fusion {fusion.name!r}: before is no pattern: {side.problem}")
        self.side = side
        self.nodes = [self._node(op) for op in side.operations]
        self.root = self._root()
        """The number of the node that matching begins with: the output that depends on most operations."""
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
        behind: dict[Operation, set[Operation]] = {}
        for node in self.nodes:
            operands = {value.op for value in node.op.operands if isinstance(value, OpResult)}
            behind[node.op] = operands.union(*(behind[op] for op in operands))
        outputs = [i for i, node in enumerate(self.nodes) if any(o.owner is node.op for o in self.side.outputs)]
        return max(outputs, key=lambda i: (len(behind[self.nodes[i].op]), i))

    def trace(
        self,
        function: Callable[..., object],
        kinds: Sequence[TensorType[Attribute]],
        parameters: Mapping[int, object],
        examples: Examples,
    ) -> Side:
        """A side on operands of these types, with other values of parameters; raises what tracing raises."""

        def call(*operands: object) -> object:
            return function(*self.filled(operands, parameters))

        return Side(trace_callable(call, kinds, examples, self.decompositions, pure=True))

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
        numbers: dict[SSAValue, int] = {value: i for i, value in enumerate(self.side.arguments)}
        for op in self.side.operations:
            for result in op.results:
                numbers[result] = len(numbers)
        graph = tuple(
            (node.key, tuple(numbers[value] for value in node.tensors), node.parameters, len(node.op.results))
            for node in self.nodes
        )
        outputs = tuple(numbers[value] for value in self.side.outputs)
        rest = tuple(a for i, a in enumerate(self.arguments) if i not in self.positions and i not in self.parameters)
        return graph, outputs, tuple(self.positions), rest

    def _node(self, op: Operation) -> Node:
        places = tuple(
            (path, number)
            for path, leaf in leaves_of(op)
            for number in self.parameters
            if _is_number(leaf, self.arguments[number])
        )
        return Node(op, key_of(op), tuple(tensors_of(op)), places)


def is_parameter(argument: object) -> bool:
    """Whether an argument of a fusion is a number, which any other number may stand in for."""
    return isinstance(argument, int | float) and not isinstance(argument, bool)


def _is_number(leaf: Attribute, number: object) -> bool:
    return (
        isinstance(leaf, IntegerAttr | FloatAttr)
        and leaf.value.data == number
        and (isinstance(leaf, FloatAttr) == isinstance(number, float))
    )
