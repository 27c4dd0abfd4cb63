"""One `vllm_ir.func` as an FX graph: everything up to the final writes."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from xdsl.dialects import arith
from xdsl.dialects.builtin import FileLineColLoc, NameLoc, NoneType, StringAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.fx.errors import OperatorError, located
from vllm_ir.backends.fx.known_results import KnownResults
from vllm_ir.backends.fx.layout import tensor_of, with_strides
from vllm_ir.backends.fx.metas import set_value
from vllm_ir.backends.fx.operand_layouts import OperandLayouts
from vllm_ir.dialects.torch.call import REASON, CallOp
from vllm_ir.dialects.torch.constant import ConstantOp
from vllm_ir.dialects.vllm_ir.function import STORAGE, FuncOp, root_of, written_buffers
from vllm_ir.dialects.vllm_ir.high_level import donated_indices
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, RelayoutOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, shape_of
from vllm_ir.frontends.fx.arithmetic import INTEGER_FUNCTIONS, compute
from vllm_ir.frontends.fx.errors import error_summary
from vllm_ir.frontends.fx.opaque import absent_arguments, opaque_functional
from vllm_ir.frontends.fx.regions import may_overlap
from vllm_ir.frontends.fx.schemas import OpInfo, Target, op_info, resolve
from vllm_ir.frontends.fx.storages import nodes_in, storage_key, tensors_in
from vllm_ir.frontends.fx.torch_objects import Overload, call_node, is_overload, map_nodes, rename_node, reserve_name
from vllm_ir.frontends.fx.types import known_dtype
from vllm_ir.frontends.fx.values import decode, is_sequence, number
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.dialect import call_arguments

aten = torch.ops.aten


class GraphBuilder:
    """An FX graph under construction, whose nodes all know what they give.

    `opaque`: custom operators that write become operators that a compiler cannot look into.
    """

    def __init__(self, mode: FakeTensorMode, opaque: bool = False) -> None:
        self.graph = fx.Graph()
        self.mode = mode
        self.name: str | None = None
        self.trace: str | None = None
        self._parameters: set[str] = set()  # of the method that FX makes of the graph
        reserve_name(self.graph, "self")  # which is the first of them
        self.opaque = opaque
        self.known = KnownResults(mode)
        self.copies: dict[fx.Node, str] = {}
        """Nodes that copy a tensor, and why."""

    def placeholder(self, name: str, value: object) -> fx.Node:
        """A new parameter of the graph, called `name` if no other one is."""
        # A parameter is named by its target, and FX makes only node names unique and identifiers.
        node = self.graph.placeholder(name)
        if name in self._parameters or node.name != name:
            node.target = node.name
        self._parameters.add(str(node.target))
        node.meta["val"] = value
        return node

    def at(self, op: Operation) -> None:
        """Name and locate the next nodes as `op`."""
        location = op.location
        self.name, self.trace = None, None
        if isinstance(location, NameLoc):
            self.name = location.desc.data
            location = location.location
        elif op.results:
            self.name = op.results[0].name_hint
        if isinstance(location, FileLineColLoc):
            # The name of the file becomes a part of code, in a comment.
            file = "".join(character if character.isprintable() else "?" for character in location.filename.data)
            self.trace = f'  File "{file}", line {location.line.data}, in forward\n'

    def emit(self, target: Target, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None) -> fx.Node:
        """A call node; it is run on the fakes of its arguments."""
        keywords = dict(kwargs or {})
        try:
            value = self.known.value(target, args, keywords)
        except Exception as error:
            raise OperatorError(f"PyTorch refuses the call: {error_summary(error)}") from error
        if is_overload(target) and keyword.iskeyword(str(target).rpartition(".")[2]):
            target = target.overloadpacket  # FX cannot write `aten.random_.from` as Python code
        node = call_node(self.graph, target, args, keywords)
        if self.name is not None:
            rename_node(node, self.name)
        if self.trace is not None:
            node.meta["stack_trace"] = self.trace
        set_value(node, value, self.mode)
        return node

    def copy(self, node: fx.Node, reason: str) -> fx.Node:
        """A node with a copy of the tensor that `node` gives."""
        copy = self.emit(aten.clone.default, (node,))
        self.copies[copy] = reason
        return copy

    def item(self, node: fx.Node, index: int) -> fx.Node:
        """Result `index` of a call with several."""
        item = self.graph.call_function(operator.getitem, (node, index))
        item.meta["val"] = node.meta["val"][index]
        if self.trace is not None:
            item.meta["stack_trace"] = self.trace
        return item


class FunctionExporter:
    """Exports the operations of one function into `builder.graph`."""

    def __init__(
        self, function: FuncOp, builder: GraphBuilder, root: torch.nn.Module, functions: Mapping[str, fx.GraphModule]
    ) -> None:
        self.function = function
        self.builder = builder
        self.root = root
        self.functions = functions
        self.values: dict[SSAValue, object] = {}
        self.operands = OperandLayouts(builder.emit, self.values)
        self.constants = 0
        self._sub_graphs: dict[str, str] = {}
        """Attributes that hold other functions of the module, by the names of the functions."""

    def body(self) -> list[Operation]:
        """Export all operations in front of the tail; returns the tail: final writes, views, return."""
        ops = list(self.function.block.ops)
        end = next((i for i, op in enumerate(ops) if isinstance(op, WriteOp)), len(ops) - 1)
        if self.function.functional is None:
            end = len(ops) - 1
        for op in ops[:end]:
            # Views in a functional function only describe what is written or returned.
            if self.function.functional is None or not isinstance(op, ViewOp | AllocOp):
                self.export(op)
        tail = [op for op in ops[:end] if self.function.functional is not None and isinstance(op, ViewOp | AllocOp)]
        return [*tail, *ops[end:]]

    def node(self, value: SSAValue) -> fx.Node:
        """The node that gives `value`."""
        found = self.values.get(value)
        if not isinstance(found, fx.Node) and isinstance(value.owner, ViewOp):
            self.export(value.owner)
            found = self.values.get(value)
        if not isinstance(found, fx.Node):
            raise VerifyException(f"%{value.name_hint} has no node")
        return found

    def export(self, op: Operation) -> None:
        """Export one operation; `OperationVerifyError` if it has no form in FX."""
        self.builder.at(op)
        with located(op):
            self._export(op)

    def _export(self, op: Operation) -> None:
        match op:
            case CallOp() if op.updates is not None:
                self._updates(op)
            case CallOp() | ViewOp():
                self._call(op)
            case ReadOp():
                self._read(op)
            case WriteOp():
                self._write(op)
            case AllocOp():
                self._alloc(op)
            case RelayoutOp():
                self.values[op.result] = with_strides(self.builder.emit, self.node(op.value), op.result.type)
            case ConstantOp():
                self._constant(op)
            case arith.ConstantOp():
                self.values[op.result] = number(op.value)
            case _ if (target := INTEGER_FUNCTIONS.get(type(op))) is not None:
                self.values[op.results[0]] = self._scalar(target, [self.values[operand] for operand in op.operands])
            case _ if op.name.startswith("vllm_ir."):
                self._high_level(op)
            case _:
                raise VerifyException(f"{op.name} has no form in FX")

    def _scalar(self, target: Callable[..., object], operands: Sequence[object]) -> object:
        if not any(True for _ in nodes_in(operands)):
            return compute(target, operands)
        return self.builder.emit(target, tuple(operands))

    # Calls

    def _target(self, name: str) -> object:
        return self._sub_graph(name) if name in self.functions else resolve(name)

    def _sub_graph(self, name: str) -> fx.Node:
        if name not in self._sub_graphs:
            self._sub_graphs[name] = self._attribute_name(name)
            self.root.add_module(self._sub_graphs[name], self.functions[name])
        node = self.builder.graph.get_attr(self._sub_graphs[name])
        node.meta["val"] = self.functions[name]
        return node

    def _attribute_name(self, wanted: str) -> str:
        """A new name for an attribute of the graph's module, like `wanted`. FX writes it into code as it is."""
        base = wanted if wanted.isidentifier() and not keyword.iskeyword(wanted) else "sub_graph"
        names = (base, *(f"{base}_{number}" for number in range(1, len(self._sub_graphs) + 2)))
        return next(name for name in names if not hasattr(self.root, name) and not hasattr(fx.GraphModule, name))

    def _arguments(
        self, op: CallOp | ViewOp, operands: Sequence[object] | None = None
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        if operands is None:
            operands = [self._operand(operand) for operand in op.operands]
        args = tuple(decode(tree, operands, self._target) for tree in op.args.data)
        kwargs = {
            name: decode(tree, operands, self._target) for name, tree in (op.kwargs.data.items() if op.kwargs else ())
        }
        return args, kwargs

    def _operand(self, operand: SSAValue) -> object:
        if isinstance(operand.type, BufferType) and operand not in self.values:
            return self.node(operand)
        return self.values[operand]

    def _call(self, op: CallOp | ViewOp) -> None:
        target = resolve(op.target)
        args, kwargs = self._arguments(op)
        if is_overload(target) and op_info(target).layout_sensitive:
            args, kwargs = self.operands.restride(op, args, kwargs)
        if op.target.startswith("python."):
            self.values[op.results[0]] = self._scalar(target, args)
            return
        if any(leaf.op == "get_attr" and leaf.target in self._sub_graphs.values() for leaf in nodes_in(args)):
            args, kwargs = self.operands.restride(op, args, kwargs, free=True)
        node = None
        if is_overload(target) and op_info(target).is_view:
            args, kwargs = self.operands.with_known_strides(op, args, kwargs)
            if self.operands.has_other_layout(op):
                node = self.operands.view_of_other_layout(op, target, args, kwargs)
                if node is None:
                    args, kwargs = self.operands.restride(op, args, kwargs)
        node = node or self.builder.emit(target, args, kwargs)
        self._bind_results(op, node)
        if isinstance(reason := op.attributes.get(REASON), StringAttr):
            self.builder.copies[node] = reason.data
            self.values[op.results[0]] = with_strides(self.builder.emit, node, op.results[0].type)

    def _bind_results(self, op: Operation, node: fx.Node) -> None:
        """Connect results, in the order of the leaves of what the node gives."""
        results = iter(op.results)

        def bind(source: fx.Node) -> None:
            value: object = source.meta["val"]
            if is_sequence(value):
                for index in range(len(value)):
                    bind(self.builder.item(source, index))
                return
            result = next(results, None)
            if value is None:
                if source is not node:
                    self.builder.graph.erase_node(source)
                if result is not None:
                    self.values[result] = None
                return
            if result is None:
                raise VerifyException(f"{op.name} has fewer results than {source} gives")
            self.values[result] = source
            if source is not node and result.name_hint is not None:
                rename_node(source, result.name_hint)

        bind(node)

    def _updates(self, op: CallOp) -> None:
        target = resolve(op.target)
        if not is_overload(target):
            raise VerifyException(f"@{op.target} has updates but no schema")
        info = op_info(target)
        operands = self._separate_operands(op)
        args, kwargs = self._arguments(op, operands)
        nodes = [node if isinstance(node, fx.Node) else None for node in operands]
        if info.layout_sensitive:
            fixed = self.operands.restrided(op, nodes)
            args, kwargs = map_nodes((args, kwargs), lambda node: fixed.get(node, node))
            nodes = [None if node is None else fixed.get(node, node) for node in nodes]
        bound = {a.name: v for a, v in zip(info.arguments, [*args, *kwargs.values()], strict=True)}
        separable = _appear_once(bound, info) and can_auto_functionalize(target)
        if self.builder.opaque or (self.function.is_pure and not separable):
            self._opaque(op, info, target, bound)
        elif separable:
            self._auto_functionalized(op, target, bound)
        else:
            self._on_copies(op, info, target, bound, [nodes[index] for index in op.update_indices])

    def _separate_operands(self, op: CallOp) -> list[object]:
        """The operands as nodes; those that are written are nodes that no other operand is.

        Operands of equal values are one value here, though the program has them in different memory: a write to one
        must not show in the other. Arguments that are one memory in the program are one operand.
        """
        operands = [self._operand(operand) for operand in op.operands]
        for index in op.update_indices:
            node = operands[index]
            if isinstance(node, fx.Node) and operands.count(node) > 1:
                operands[index] = self.builder.copy(node, "another operand has the same value")
        return operands

    def _opaque(self, op: CallOp, info: OpInfo, target: Overload, bound: Mapping[str, object]) -> None:
        sharing = () if _appear_once(bound, info) else _tensor_numbers(bound)
        functional = opaque_functional(target, absent_arguments(target, bound), sharing)
        names = [argument.name for argument in info.arguments]
        positional = tuple(bound[name] for name in names[: info.positional])
        keywords = {name: bound[name] for name in names[info.positional :]}
        self._bind_results(op, self.builder.emit(functional, positional, keywords))

    def _auto_functionalized(self, op: CallOp, target: OpOverload, bound: Mapping[str, object]) -> None:
        node = self.builder.emit(auto_functionalized, (target,), bound)
        results = [result for result in op.results if not isinstance(result.type, NoneType)]
        for result, leaf in zip(results, _leaf_nodes(self.builder, node), strict=True):
            self.values[result] = leaf

    def _on_copies(
        self,
        op: CallOp,
        info: OpInfo,
        target: OpOverload,
        bound: Mapping[str, object],
        written: Sequence[fx.Node | None],
    ) -> None:
        """Call the operator on copies of the nodes that it writes, wherever they are among its arguments."""
        copies: dict[fx.Node, fx.Node] = {}
        for node, index in zip(written, op.update_indices, strict=True):
            if node is not None and node not in copies:
                clone = self.builder.copy(node, f"@{op.target} writes it")
                exact = info.layout_sensitive
                copies[node] = with_strides(self.builder.emit, clone, op.operands[index].type) if exact else clone
        replaced = map_nodes(dict(bound), lambda node: copies.get(node, node))
        names = [argument.name for argument in info.arguments]
        positional = tuple(replaced[name] for name in names[: info.positional])
        keywords = {name: replaced[name] for name in names[info.positional :]}
        node = self.builder.emit(target, positional, keywords)
        own = len(op.results) - len(op.update_indices)
        fresh = [leaf for leaf in _leaf_nodes(self.builder, node) if _is_new(leaf, copies.values())][:own]
        for result, leaf in zip(op.results, fresh, strict=False):
            self.values[result] = leaf
        for result, node in zip(op.results[own:], written, strict=True):
            self.values[result] = copies.get(node) if node is not None else None

    def _high_level(self, op: Operation) -> None:
        ir_op = ops[op.name.removeprefix("vllm_ir.")]
        target = ir_op.torch_op
        if donated_indices(op) and self.function.functional is None and ir_op.maybe_inplace is not None:
            target = ir_op.maybe_inplace.torch_op
        args = call_arguments(op, ir_op, map(self._operand, op.operands))
        self._bind_results(op, self.builder.emit(target, args))

    # Memory

    def _read(self, op: ReadOp) -> None:
        node = self.node(op.buffer)
        if self.function.functional is None and self._written_later(op):
            node = self.builder.copy(node, "the memory is written after it was read")
        self.values[op.result] = node

    def _written_later(self, op: ReadOp) -> bool:
        """Whether the memory that `op` reads may be written before the last use of what it read."""
        root, later = root_of(op.buffer), op.next_op
        pending = {use.operation for use in op.result.uses}
        if any(map(_keeps_alias, pending)):
            return any(self._writes(after, op.buffer, root) for after in _following(op))
        while later is not None and pending:
            pending.discard(later)
            if pending and self._writes(later, op.buffer, root):
                return True
            later = later.next_op
        return False

    def _writes(self, op: Operation, buffer: SSAValue, root: SSAValue) -> bool:
        touched = [*written_buffers(op), *(op.operands[index] for index in donated_indices(op))]
        return any(isinstance(b.type, BufferType) and self._may_share(buffer, root, b) for b in touched)

    def _may_share(self, buffer: SSAValue, root: SSAValue, other: SSAValue) -> bool:
        """Whether two windows may have an element in common."""
        other_root = root_of(other)
        if root is not other_root and not (isinstance(root, BlockArgument) and isinstance(other_root, BlockArgument)):
            return False
        if root is not other_root and not self._share_storage(root, other_root):
            return False
        return may_overlap(buffer.type, other.type)

    def _share_storage(self, first: SSAValue, second: SSAValue) -> bool:
        """Whether the signature says that two arguments share memory."""
        numbers = [
            self.function.argument_attributes(value.index).get(STORAGE)
            for value in (first, second)
            if isinstance(value, BlockArgument)
        ]
        return len(numbers) == 2 and numbers[0] is not None and numbers[0] == numbers[1]

    def _write(self, op: WriteOp) -> None:
        self.builder.emit(aten.copy_.default, (self.node(op.buffer), self.node(op.value)))

    def _alloc(self, op: AllocOp) -> None:
        node = self.node(op.init)
        if not self._is_fresh(op.init, node):
            node = self.builder.copy(node, "new memory is asked for")
        self.values[op.buffer] = with_strides(self.builder.emit, node, op.buffer.type)

    def _is_fresh(self, value: SSAValue, node: fx.Node) -> bool:
        """Whether the memory of `node` is its own and nobody else reads it as a value."""
        if value.has_more_than_one_use() or not isinstance(value.owner, Operation):
            return False
        if isinstance(value.owner, ConstantOp | ReadOp):
            return False
        key = storage_key(tensor_of(node))
        inputs = [tensor for source in _producer(node).all_input_nodes for tensor in tensors_in(source.meta.get("val"))]
        return all(storage_key(tensor) != key for tensor in inputs)

    def _constant(self, op: ConstantOp) -> None:
        dtype = known_dtype(op.result.type.element_type)
        with unset_fake_temporarily():
            data = bytearray(bytes.fromhex(op.data.data))
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            tensor = flat.reshape(shape_of(op.result.type))
        name = f"_tensor_constant{self.constants}"
        while hasattr(self.root, name):
            self.constants += 1
            name = f"_tensor_constant{self.constants}"
        self.root.register_buffer(name, tensor)
        node = self.builder.graph.get_attr(name)
        node.meta["val"] = self.builder.mode.from_tensor(tensor, static_shapes=True)
        self.values[op.result] = node


def _keeps_alias(op: Operation) -> bool:
    """Whether results of `op` may be in the memory of its operands."""
    if isinstance(op, WriteOp):
        return False
    target = resolve(op.target) if isinstance(op, CallOp) else None
    return not is_overload(target) or op_info(target).is_view


def _following(op: Operation) -> Iterator[Operation]:
    while (later := op.next_op) is not None:
        yield later
        op = later


def _producer(node: fx.Node) -> fx.Node:
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _appear_once(bound: Mapping[str, object], info: OpInfo) -> bool:
    """Whether no written tensor is also another argument: a copy would tear the two apart."""
    written: list[fx.Node] = []
    others: list[fx.Node] = []
    for argument in info.arguments:
        (written if argument.writes else others).extend(nodes_in(bound[argument.name]))
    return len(set(written)) == len(written) and not set(written) & set(others)


def _tensor_numbers(bound: Mapping[str, object]) -> tuple[int, ...]:
    """A number for each tensor among the arguments, in order; uses of one tensor have one number."""
    numbers: dict[fx.Node, int] = {}
    tensors = (node for node in nodes_in(list(bound.values())) if isinstance(node.meta["val"], Tensor))
    return tuple(numbers.setdefault(node, len(numbers)) for node in tensors)


def _leaf_nodes(builder: GraphBuilder, node: fx.Node) -> list[fx.Node]:
    value: object = node.meta["val"]
    if is_sequence(value):
        return [
            leaf
            for index, item in enumerate(value)
            if item is not None
            for leaf in _leaf_nodes(builder, builder.item(node, index))
        ]
    return [] if value is None else [node]


def _is_new(node: fx.Node, copies: Collection[fx.Node]) -> bool:
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return True
    return storage_key(value) not in {storage_key(tensor_of(copy)) for copy in copies}
