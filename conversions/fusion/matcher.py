"""Finding a pattern in a program: a match of graphs, from a root operation towards its operands.

Two questions are asked in turn. `matches` compares operators and edges alone, without types, and finds what the
pattern's tensors and parameters are. `disagreement` compares every attribute and type with the pattern traced on those
very operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, i1, i64
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from vllm_ir.conversions.errors import describe
from vllm_ir.conversions.fusion.commutativity import is_commutative
from vllm_ir.conversions.fusion.dimensions import same_dimensions
from vllm_ir.conversions.fusion.pattern import (
    ARGUMENT,
    Key,
    Node,
    Path,
    Side,
    Source,
    Variant,
    is_matchable,
    items_of,
    key_of,
    tensors_of,
    trees_of,
)
from vllm_ir.conversions.fusion.sizes import LEFT_OUT, same_integers, same_sizes, same_type
from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.types import sizes_of
from vllm_ir.frontends.fx.types import is_tensor


@dataclass
class Miss:
    """Why an operation is not the root of a match: how far matching got, and what did not fit there."""

    matched: int
    """How many operations had matched, and one more where all of them are right and only cannot be replaced."""
    operation: Operation
    reason: str


@dataclass(frozen=True)
class Match:
    """What each part of a pattern is in a program."""

    operations: list[Operation]
    """Operations of the program, in the order of the pattern's."""
    operands: list[list[SSAValue]]
    """The tensors that each takes."""
    tensors: list[SSAValue]
    """Values of the program, in the order of the pattern's arguments."""
    parameters: dict[int, Attribute]
    """Attributes by number of the fusion's argument."""

    def value(self, source: Source) -> SSAValue:
        """What a value of the pattern is in the program."""
        number, index = source
        return self.tensors[index] if number == ARGUMENT else self.operations[number].results[index]


class Matcher:
    """Matches of one variant of a pattern."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.root = variant.nodes[variant.root]
        self.miss: Miss | None = None
        """The best attempt at the root of the last `match`, if it failed."""
        self._start()

    def _start(self) -> None:
        self.miss = None
        self._operations: list[Operation | None] = [None] * len(self.variant.nodes)
        self._operands: list[list[SSAValue]] = [[]] * len(self.variant.nodes)
        self._tensors: list[SSAValue | None] = [None] * len(self.variant.positions)
        self._parameters: dict[int, Attribute] = {}
        self._matched: list[int] = []
        """Numbers of the operations that match, in the order in which they were found."""
        self._bound: list[int] = []
        """Numbers of the tensors that are known, and of the parameters."""
        self._given: list[int] = []

    def matches(self, root: Operation) -> Iterator[Match]:
        """The matches of which `root` is the operation that matching begins with.

        There are several where an output is found among users of one value: operators and edges do not tell them apart.
        """
        self._start()
        if self._operation(self.root, root):
            yield from self._complete()

    def _complete(self) -> Iterator[Match]:
        """Match what is not behind the root: operations of other outputs, which share a value with what matched."""
        if len(self._matched) == len(self._operations):
            operations = [op for op in self._operations if op is not None]
            tensors = [value for value in self._tensors if value is not None]
            yield Match(operations, list(self._operands), tensors, dict(self._parameters))
            return
        missing = [node for node in self.variant.nodes if self._operations[node.number] is None]
        reachable = [(node, value) for node in missing if (value := self._shared(node)) is not None]
        if not reachable:
            return
        node, shared = reachable[-1]
        taken = [op for op in self._operations if op is not None]
        users = [user for user in dict.fromkeys(use.operation for use in shared.uses) if user not in taken]
        if not any(key_of(user) == node.key for user in users):
            self._fail(None, f"%{shared.name_hint} has no further user {node.key}")
        for user in users:
            mark = self._mark()
            if key_of(user) == node.key and self._operation(node, user):
                yield from self._complete()
            self._undo(mark)

    def _shared(self, node: Node) -> SSAValue | None:
        """A tensor that an operation takes and that is known; None if it takes none."""
        for number, index in node.tensors:
            op = None if number == ARGUMENT else self._operations[number]
            known = self._tensors[index] if number == ARGUMENT else None if op is None else op.results[index]
            if known is not None:
                return known
        return None

    def _operation(self, node: Node, op: Operation) -> bool:
        known = self._operations[node.number]
        if known is not None:
            return known is op or self._fail(op, f"it stands where {describe(known)} is expected")
        if key_of(op) != node.key:
            return self._fail(op, f"{node.key} is expected here")
        if not is_matchable(op):
            return self._fail(op, "it does more than to compute values")
        if len(op.results) != len(node.op.results):
            return self._fail(op, f"it has {len(op.results)} results, {len(node.op.results)} are expected")
        tensors = self._operands[node.number] = tensors_of(op)
        if len(tensors) != len(node.tensors):
            return self._fail(op, f"it takes {len(tensors)} tensors, {len(node.tensors)} are expected")
        mark = self._mark()
        if self._with_operands(node, op, tensors):
            return True
        self._undo(mark)
        if len(tensors) == 2 and tensors[0] is not tensors[1] and is_commutative(node.key):
            if self._with_operands(node, op, tensors[::-1]):
                return True
            self._undo(mark)
        return False

    def _with_operands(self, node: Node, op: Operation, tensors: Sequence[SSAValue]) -> bool:
        self._operations[node.number] = op
        self._matched.append(node.number)
        if node.parameters and not self._find_parameters(node, op):
            return False
        return all(self._value(source, theirs) for source, theirs in zip(node.tensors, tensors, strict=True))

    def _value(self, source: Source, theirs: SSAValue) -> bool:
        number, index = source
        if number != ARGUMENT:
            node = self.variant.nodes[number]
            if type(theirs) is not OpResult:
                return self._fail(None, f"%{theirs.name_hint} is an argument, {node.key} is expected")
            if theirs.index != index:
                return self._fail(None, f"%{theirs.name_hint} is another result than expected")
            return self._operation(node, theirs.op)
        known = self._tensors[index]
        if known is not None:
            if known is theirs:
                return True
            return self._fail(None, f"%{theirs.name_hint} stands where %{known.name_hint} is expected")
        if not is_tensor(theirs.type):
            return self._fail(None, f"%{theirs.name_hint} is memory, not a value")
        self._tensors[index] = theirs
        self._bound.append(index)
        return True

    def _find_parameters(self, node: Node, op: Operation) -> bool:
        trees = trees_of(op)
        for path, number in node.parameters:
            if number in self._parameters:
                continue
            found = _at(trees, path)
            if found is None or isinstance(found, OperandAttr):
                return self._fail(op, f"argument {'.'.join(map(str, path))} is no constant")
            if found == LEFT_OUT and (found := _size_of_result(op, path)) is None:
                continue
            self._parameters[number] = found
            self._given.append(number)
        return True

    def _mark(self) -> tuple[int, int, int]:
        return len(self._matched), len(self._bound), len(self._given)

    def _undo(self, mark: tuple[int, int, int]) -> None:
        matched, bound, given = mark
        while len(self._matched) > matched:
            self._operations[self._matched.pop()] = None
        while len(self._bound) > bound:
            self._tensors[self._bound.pop()] = None
        while len(self._given) > given:
            del self._parameters[self._given.pop()]

    def _fail(self, op: Operation | None, reason: str) -> bool:
        matched = len(self._matched)
        if matched and (self.miss is None or matched > self.miss.matched):
            at = op or self._operations[self._matched[-1]]
            if at is not None:
                self.miss = Miss(matched, at, reason)
        return False


def _size_of_result(op: Operation, path: Path) -> Attribute | None:
    """What `-1` in a list of sizes stands for; None if that is not known. Where it is no size, it will not agree."""
    kind, index = op.results[0].type, path[-1]
    sizes = sizes_of(kind) if len(path) > 1 and is_tensor(kind) else ()
    size = sizes[index] if isinstance(index, int) and index < len(sizes) else None
    return IntegerAttr(size, i64) if isinstance(size, int) else None


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
    if len(side.operations) != len(variant.nodes):
        root = match.operations[variant.root]
        return Miss(len(variant.nodes), root, "on operands of these types the pattern has other operations")
    for (ours, key, sources), theirs, operands in zip(side.wiring, match.operations, match.operands, strict=True):
        if key != key_of(theirs) or len(ours.results) != len(theirs.results):
            return Miss(len(variant.nodes), theirs, f"on operands of these types the pattern has {key} here")
        if not _same_operands(key, [match.value(source) for source in sources], operands):
            return Miss(len(variant.nodes), theirs, "its operands are others than those of the pattern")
        reason = _difference(ours, theirs, original)
        if reason is not None:
            return Miss(len(variant.nodes), theirs, reason)
    return None


def _same_operands(key: Key, ours: list[SSAValue], theirs: list[SSAValue]) -> bool:
    # Lists of values compare by identity.
    return ours == theirs or (len(ours) == len(theirs) == 2 and ours == theirs[::-1] and is_commutative(key))


def _difference(ours: Operation, theirs: Operation, original: Callable[[Attribute], Attribute]) -> str | None:
    for index, (mine, other) in enumerate(zip(ours.results, theirs.results, strict=True)):
        if mine.type is not other.type and not same_type(original(mine.type), other.type):
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
        return same_integers(tree, other, ours, theirs, original)
    if same_sizes(mine, others, ours, theirs, original):
        return True
    return len(mine) == len(others) and all(
        a == b or _same_tree(a, b, ours, theirs, original) for a, b in zip(mine, others, strict=True)
    )


def _is_tensor_reference(leaf: Attribute, op: Operation) -> bool:
    return isinstance(op, CallOp) and isinstance(leaf, OperandAttr) and is_tensor(op.operands[leaf.index.data].type)


def _text(tree: Attribute) -> str:
    if isinstance(tree, IntegerAttr | FloatAttr):
        return str(tree.value.data if tree.get_type() != i1 else bool(tree.value.data))
    return str(tree)


__all__ = ["Match", "Matcher", "Miss", "disagreement"]
