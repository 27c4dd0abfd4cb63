"""Finding a pattern in a program: a match of graphs, from a root operation towards its operands.

Two questions are asked in turn. `matches` compares operators and edges alone, without types, and finds what the
pattern's tensors and parameters are. `disagreement` compares every attribute and type with the pattern traced on those
very operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from vllm_ir.conversions.errors import describe
from vllm_ir.conversions.fusion.commutativity import is_commutative
from vllm_ir.conversions.fusion.dimensions import same_dimensions
from vllm_ir.conversions.fusion.pattern import (
    Node,
    Path,
    Side,
    Variant,
    is_matchable,
    items_of,
    key_of,
    tensors_of,
    trees_of,
)
from vllm_ir.conversions.fusion.sizes import same_sizes
from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.fx.types import is_tensor

_Ours = TypeVar("_Ours")
_Theirs = TypeVar("_Theirs")


@dataclass
class Miss:
    """Why an operation is not the root of a match: how far matching got, and what did not fit there."""

    matched: int
    """How many operations had matched."""
    operation: Operation
    reason: str


@dataclass
class Match:
    """What each part of a pattern is in a program."""

    operations: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])
    """Operations of the program by those of the pattern."""
    tensors: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Values of the program by arguments of the pattern."""
    parameters: dict[int, Attribute] = field(default_factory=dict[int, Attribute])
    """Attributes by number of the fusion's argument."""

    def copy(self) -> Match:
        """The same match, which stays as it is when matching goes on."""
        return Match(dict(self.operations), dict(self.tensors), dict(self.parameters))

    def value(self, value: SSAValue) -> SSAValue:
        """What a value of the pattern is in the program."""
        if isinstance(value, OpResult):
            return self.operations[value.op].results[value.index]
        return self.tensors[value]


class Matcher:
    """Matches of one variant of a pattern."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.nodes: dict[Operation, Node] = {node.op: node for node in variant.nodes}
        self.root = variant.nodes[variant.root]
        self.miss: Miss | None = None
        """The best attempt at the root of the last `match`, if it failed."""
        self._match = Match()
        self._trail: list[Callable[[], object]] = []

    def matches(self, root: Operation) -> Iterator[Match]:
        """The matches of which `root` is the operation that matching begins with.

        There are several where an output is found among users of one value: operators and edges do not tell them apart.
        """
        self._match, self._trail, self.miss = Match(), [], None
        if self._operation(self.root, root):
            yield from self._complete()

    def _complete(self) -> Iterator[Match]:
        """Match what is not behind the root: operations of other outputs, which share a value with what matched."""
        missing = [node for node in self.variant.nodes if node.op not in self._match.operations]
        if not missing:
            yield self._match.copy()
            return
        reachable = [node for node in missing if any(self._known(value) for value in node.tensors)]
        if not reachable:
            return
        node = reachable[-1]
        shared = self._match.value(next(value for value in node.tensors if self._known(value)))
        taken = set(self._match.operations.values())
        users = [user for user in dict.fromkeys(use.operation for use in shared.uses) if user not in taken]
        if not any(key_of(user) == node.key for user in users):
            self._fail(None, f"%{shared.name_hint} has no further user {node.key}")
        for user in users:
            mark = len(self._trail)
            if key_of(user) == node.key and self._operation(node, user):
                yield from self._complete()
            self._undo(mark)

    def _known(self, value: SSAValue) -> bool:
        if isinstance(value, OpResult):
            return value.op in self._match.operations
        return value in self._match.tensors

    def _operation(self, node: Node, op: Operation) -> bool:
        known = self._match.operations.get(node.op)
        if known is not None:
            return known is op or self._fail(op, f"it stands where {describe(known)} is expected")
        if key_of(op) != node.key:
            return self._fail(op, f"{node.key} is expected here")
        if not is_matchable(op):
            return self._fail(op, "it does more than to compute values")
        if len(op.results) != len(node.op.results):
            return self._fail(op, f"it has {len(op.results)} results, {len(node.op.results)} are expected")
        tensors = tensors_of(op)
        if len(tensors) != len(node.tensors):
            return self._fail(op, f"it takes {len(tensors)} tensors, {len(node.tensors)} are expected")
        mark = len(self._trail)
        self._bind(self._match.operations, node.op, op)
        if not self._parameters(node, op):
            self._undo(mark)
            return False
        if self._operands(node, tensors):
            return True
        if len(tensors) == 2 and tensors[0] is not tensors[1] and is_commutative(node.key):
            self._undo(mark)
            self._bind(self._match.operations, node.op, op)
            self._parameters(node, op)
            if self._operands(node, tensors[::-1]):
                return True
        self._undo(mark)
        return False

    def _operands(self, node: Node, tensors: Sequence[SSAValue]) -> bool:
        return all(self._value(ours, theirs) for ours, theirs in zip(node.tensors, tensors, strict=True))

    def _value(self, ours: SSAValue, theirs: SSAValue) -> bool:
        if isinstance(ours, OpResult):
            if isinstance(theirs, BlockArgument):
                return self._fail(None, f"%{theirs.name_hint} is an argument, {key_of(ours.op)} is expected")
            if not isinstance(theirs, OpResult) or theirs.index != ours.index:
                return self._fail(None, f"%{theirs.name_hint} is another result than expected")
            return self._operation(self.nodes[ours.op], theirs.op)
        known = self._match.tensors.get(ours)
        if known is not None:
            if known is theirs:
                return True
            return self._fail(None, f"%{theirs.name_hint} stands where %{known.name_hint} is expected")
        if not is_tensor(theirs.type):
            return self._fail(None, f"%{theirs.name_hint} is memory, not a value")
        self._bind(self._match.tensors, ours, theirs)
        return True

    def _parameters(self, node: Node, op: Operation) -> bool:
        if not node.parameters:
            return True
        trees = trees_of(op)
        for path, number in node.parameters:
            if number in self._match.parameters:
                continue
            found = _at(trees, path)
            if found is None or isinstance(found, OperandAttr):
                return self._fail(op, f"argument {'.'.join(map(str, path))} is no constant")
            if len(path) > 1 and isinstance(found, IntegerAttr) and found.value.data == -1:
                continue  # a size that the others leave
            self._bind(self._match.parameters, number, cast(Attribute, found))
        return True

    def _bind(self, table: dict[_Ours, _Theirs], key: _Ours, value: _Theirs) -> None:
        table[key] = value
        self._trail.append(lambda: table.pop(key))

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            self._trail.pop()()

    def _fail(self, op: Operation | None, reason: str) -> bool:
        matched = len(self._match.operations)
        if matched and (self.miss is None or matched > self.miss.matched):
            at = op or next(reversed(self._match.operations.values()))
            self.miss = Miss(matched, at, reason)
        return False


def _at(trees: Mapping[int | str, Attribute], path: Path) -> Attribute | None:
    start, *rest = path
    found = trees.get(start)
    for index in rest:
        items = None if found is None else items_of(found)
        if items is None or not isinstance(index, int) or index >= len(items):
            return None
        found = items[index]
    return found


def disagreement(match: Match, variant: Variant, side: Side, original: Callable[[Attribute], Attribute]) -> Miss | None:
    """How a match differs from `before` as traced on its operands; None if it is the same.

    Args:
        match: of operators and edges, by the operations of the variant.
        variant: what was matched.
        side: `before` on the operands and parameters of the match.
        original: types of the traced function with the names that symbols have in the program.
    """
    root = match.operations[variant.nodes[variant.root].op]
    if len(side.operations) != len(variant.nodes):
        return Miss(len(variant.nodes), root, "on operands of these types the pattern has other operations")
    exact: dict[SSAValue, SSAValue] = {
        ours: match.tensors[known] for ours, known in zip(side.arguments, variant.side.arguments, strict=True)
    }
    for ours, node in zip(side.operations, variant.nodes, strict=True):
        theirs = match.operations[node.op]
        reason = _difference(ours, theirs, exact, original)
        if reason is not None:
            return Miss(len(variant.nodes), theirs, reason)
        exact.update(zip(ours.results, theirs.results, strict=True))
    return None


def _difference(
    ours: Operation,
    theirs: Operation,
    exact: Mapping[SSAValue, SSAValue],
    original: Callable[[Attribute], Attribute],
) -> str | None:
    if key_of(ours) != key_of(theirs) or len(ours.results) != len(theirs.results):
        return f"on operands of these types the pattern has {key_of(ours)} here"
    ours_in, theirs_in = [exact[value] for value in tensors_of(ours)], tensors_of(theirs)
    same = len(ours_in) == len(theirs_in) and all(a is b for a, b in zip(ours_in, theirs_in, strict=True))
    if not same:
        swapped = len(ours_in) == len(theirs_in) == 2 and ours_in[0] is theirs_in[1] and ours_in[1] is theirs_in[0]
        if not swapped or not is_commutative(key_of(ours)):
            return "its operands are others than those of the pattern"
    for index, (mine, other) in enumerate(zip(ours.results, theirs.results, strict=True)):
        if mine.type is not other.type and original(mine.type) != other.type:
            return f"result {index} is {other.type}, the pattern gives {original(mine.type)}"
    if ours.properties == theirs.properties:
        return None
    trees, others = trees_of(ours), trees_of(theirs)
    if trees.keys() != others.keys():
        return f"it has the arguments {', '.join(map(str, others))}, the pattern {', '.join(map(str, trees))}"
    for name, tree in trees.items():
        if (
            tree != others[name]
            and not _same_tree(tree, others[name], ours, theirs, original)
            and not same_dimensions(name, tree, others[name], ours)
        ):
            return f"argument {name} is {_text(others[name])}, the pattern has {_text(tree)}"
    return None


def _same_tree(
    tree: Attribute, other: Attribute, ours: Operation, theirs: Operation, original: Callable[[Attribute], Attribute]
) -> bool:
    """Whether two arguments say the same. Tensors were compared before; sizes may be spelled in other words."""
    if _is_tensor_reference(tree, ours) and _is_tensor_reference(other, theirs):
        return True
    mine, others = items_of(tree), items_of(other)
    if mine is None or others is None:
        return False
    if same_sizes(mine, others, ours, theirs, original):
        return True
    return len(mine) == len(others) and all(
        a == b or _same_tree(a, b, ours, theirs, original) for a, b in zip(mine, others, strict=True)
    )


def _is_tensor_reference(leaf: Attribute, op: Operation) -> bool:
    return isinstance(op, CallOp) and isinstance(leaf, OperandAttr) and is_tensor(op.operands[leaf.index.data].type)


def _text(tree: Attribute) -> str:
    return str(tree.value.data) if isinstance(tree, IntegerAttr | FloatAttr) else str(tree)


__all__ = ["Match", "Matcher", "Miss", "disagreement"]
