"""One normalised FX graph to one `vllm_ir.func`."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeGuard, cast

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    FunctionType,
    IntegerAttr,
    LocationAttr,
    NoneType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue

from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.torch.constant import ConstantOp
from vllm_ir.dialects.vllm_ir.function import ALIASES, MUTATED, FuncOp, ReturnOp, root_of, written_buffers
from vllm_ir.dialects.vllm_ir.high_level import donated_indices
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.arithmetic import INTEGER_OPERATIONS
from vllm_ir.frontends.fx.binding import bind, call_properties, memory_effects
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.interning import UNKNOWN, name_location
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.opaque import written_on_copies
from vllm_ir.frontends.fx.schemas import OpInfo, Target, op_info, target_name, view_twin
from vllm_ir.frontends.fx.storages import buffer_storages, storage_key
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import NUMBER_TYPES, TypeCache, scalar_type
from vllm_ir.frontends.fx.values import encode, is_sequence, operand_reference
from vllm_ir.frontends.ops import IrOp, donates, get_op
from vllm_ir.frontends.ops.dialect import build_operation, is_tensor_type

_VALUE_TYPES = (OpResult, BlockArgument)
"""All concrete SSA values; asking for the abstract class is ten times slower."""


class GraphImporter:
    """Imports one graph. Sub-graphs of higher-order operators become further functions in `functions`.

    Attributes in `arguments` become arguments, in the order in which they stand between the placeholders.
    """

    def __init__(
        self,
        owner: fx.GraphModule,
        constants: Mapping[str, Tensor],
        types: TypeCache,
        functions: list[FuncOp],
        arguments: Collection[fx.Node] = (),
    ) -> None:
        self.owner = owner
        self.constants = constants
        self.types = types
        self.functions = functions
        self.nodes = list(owner.graph.nodes)
        self.arguments = arguments
        self.buffers = buffer_storages(self.nodes, arguments)
        self.block = Block()
        self.values: dict[fx.Node, object] = {}
        self.keys: dict[SSAValue, int] = {}
        self.changed_arguments: dict[SSAValue, BlockArgument] = {}
        """Arguments by the windows that operators such as `t_` have given them: the same tensors for the caller."""
        self.location: LocationAttr = UNKNOWN

    def run(self, name: str) -> FuncOp:
        """The function `name`."""
        for node in self.nodes:
            self.location = name_location(node.name, user_location(node))
            try:
                self.values[node] = self._node(node)
            except FxImportError as error:
                if error.node is not None:
                    raise
                raise FxImportError(error.reason, node=node.name, location=user_location(node)) from error
        return self._function(name)

    # Nodes

    def _node(self, node: fx.Node) -> object:
        match node.op:
            case "call_function":
                return self._call_function(node)
            case "placeholder":
                return self._placeholder(node)
            case "get_attr":
                return self._placeholder(node) if node in self.arguments else self._attribute(node)
            case "output":
                return self._output(node)
            case kind:
                raise FxImportError(f"{kind} node is not normalised")

    def _placeholder(self, node: fx.Node) -> SSAValue:
        value = node.meta.get("val")
        argument = self.block.insert_arg(self._type(value), len(self.block.args), self.location)
        argument.name_hint = node.name
        if isinstance(value, Tensor):
            self.keys[argument] = storage_key(value)
        return argument

    def _attribute(self, node: fx.Node) -> object:
        target = str(node.target)
        if target in self.constants:
            return self._constant(node, self.constants[target])
        try:
            sub = self.owner.get_submodule(target)
        except AttributeError:
            raise FxImportError(f"attribute {target!r} is neither a constant nor a sub-graph") from None
        if not isinstance(sub, fx.GraphModule):
            raise FxImportError(f"attribute {target!r} is a {type(sub).__name__}, not a sub-graph")
        function = GraphImporter(sub, self.constants, self.types, self.functions).run(target)
        # Behind the import, which has taken names for the sub-graphs of this one.
        name = target.replace(".", "_")
        taken = {function.sym_name.data for function in self.functions} | {"main"}
        while name in taken:
            name += "_"
        function.sym_name = StringAttr(name)
        for index in range(len(function.block.args)):
            if MUTATED in function.argument_attributes(index):
                raise FxImportError(
                    f"sub-graph {target!r} writes its operand {function.block.args[index].name_hint}; "
                    "return the new value from it instead"
                )
        self.functions.append(function)
        return SymbolRefAttr(name)

    def _constant(self, node: fx.Node, value: Tensor) -> SSAValue:
        data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes().hex()
        op = ConstantOp.create(properties={"data": StringAttr(data)}, result_types=[self.types.tensor(value)])
        fake = node.meta.get("val")
        return self.fresh(self.add(op, node.name).results[0], fake if isinstance(fake, Tensor) else value)

    def _output(self, node: fx.Node) -> object:
        operands: list[SSAValue] = []
        structure = self.encode(node.args[0], operands)
        operands = [self.changed_arguments.get(operand, operand) for operand in operands]
        self.add(ReturnOp.create(operands=operands, properties={"structure": structure}), node.name)
        return None

    # Calls

    def _call_function(self, node: fx.Node) -> object:
        target = node.target
        if target is operator.getitem:
            return self._item(node)
        if is_overload(target):
            return self._call_overload(node, target)
        if isinstance(target, HigherOrderOperator):
            from vllm_ir.frontends.fx.higher_order import import_higher_order  # imports this module

            return import_higher_order(self, node, target)
        if callable(target) and scalar_type(node.meta.get("val")) is not None:
            return self._scalar(node, target)
        raise FxImportError(f"call of {target!r} is not supported: not an operator overload")

    def _item(self, node: fx.Node) -> object:
        source, index = node.args
        items = self.values[source] if isinstance(source, fx.Node) else None
        if not is_sequence(items) or not isinstance(index, int):
            raise FxImportError(f"item {index!r} of {source} is not a result of a call")
        value = items[index]
        if _is_value(value):
            value.name_hint = node.name
        return value

    def _call_overload(self, node: fx.Node, target: OpOverload) -> object:
        info = op_info(target)
        bound = bind(node, info)
        if (op := get_op(target)) is not None:
            return self._high_level(node, op, bound, donates(target))
        value = node.meta.get("val")
        if info.changes_window:
            return self._window_change(node, info, bound)
        if (written := written_on_copies(target)) is not None:
            from vllm_ir.frontends.fx.auto_functionalized import import_opaque  # imports this module

            return import_opaque(self, node, written)
        operands: list[SSAValue] = []
        trees = [self.encode(argument, operands) for argument in bound]
        base = self._viewed(operands, value) if not info.writes else None
        if base is not None:
            return self._view(node, target, trees, operands, value)
        if info.writes and info.has_results and (outputs := self._outputs(node, info, bound, value)) is not None:
            return outputs
        return self._call(node, info, trees, operands, value)

    def _call(
        self, node: fx.Node, info: OpInfo, trees: list[Attribute], operands: list[SSAValue], value: object
    ) -> object:
        properties = call_properties(info.name, info, trees)
        reads, written = memory_effects(info, trees, operands)
        if reads:
            properties["reads"] = index_array(reads)
        leaves = list(_leaves(value)) if info.has_results else []
        if not written:
            types = [self.value_type(leaf) for leaf in leaves]
            # Nearly all operations are made here. With its location at hand, xDSL need not look for one.
            op = CallOp.create(operands=operands, result_types=types, properties=properties, location=self.location)
            self.add(op, node.name)
            return self.results(value, op.results) if leaves else None
        properties["writes"] = index_array(written)
        returns = [self._returned(leaf, operands, written) for leaf in leaves]
        if any(index >= 0 for index in returns):
            properties["returns"] = index_array(returns)
        types = [
            operands[index].type if index >= 0 else self.value_type(leaf)
            for index, leaf in zip(returns, leaves, strict=True)
        ]
        op = self.add(CallOp.create(operands=operands, result_types=types, properties=properties), node.name)
        results = [
            self._written(result, operands[index]) if index >= 0 else self.fresh(result, leaf)
            for result, index, leaf in zip(op.results, returns, leaves, strict=True)
        ]
        return _rebuild(value, iter(results)) if results else None

    def _outputs(self, node: fx.Node, info: OpInfo, bound: list[object], value: object) -> object:
        """What a call gives whose outputs grow, or are not what its fake implementation gives; None for all others."""
        from vllm_ir.frontends.fx.outputs import import_outputs  # imports this module

        leaves = list(_leaves(value))
        grows = any(isinstance(argument, fx.Node) and _is_empty(argument.meta.get("val")) for argument in bound)
        if not grows and all(storage_key(leaf) in self.buffers for leaf in leaves if isinstance(leaf, Tensor)):
            return None
        found = import_outputs(self, node, info, bound, leaves)
        return None if found is None else _rebuild(value, iter(found))

    def _returned(self, leaf: object, operands: Sequence[SSAValue], written: Sequence[int]) -> int:
        """The written operand that a result is; -1 for a new tensor."""
        if not isinstance(leaf, Tensor) or storage_key(leaf) not in self.buffers:
            return -1
        key, window = storage_key(leaf), self.types.buffer(leaf)
        same = [index for index in written if self.keys.get(operands[index]) == key]
        for index in same:
            if operands[index].type == window:
                return index
        if same:
            raise FxImportError(
                f"the operator changes its operand from {operands[same[0]].type} to {window}; "
                "resizing memory that others may see is not supported: allocate a new tensor"
            )
        return -1

    def _viewed(self, operands: Sequence[SSAValue], value: object) -> SSAValue | None:
        """The buffer operand whose storage the results are in."""
        buffers = [operand for operand in operands if type(operand.type) is BufferType]
        if not buffers:
            return None
        keys = {storage_key(leaf) for leaf in _leaves(value) if isinstance(leaf, Tensor)} & self.buffers
        return next((operand for operand in buffers if self.keys.get(operand) in keys), None)

    def _view(
        self, node: fx.Node, target: OpOverload, trees: list[Attribute], operands: list[SSAValue], value: object
    ) -> object:
        info = op_info(target)
        leaves = list(_leaves(value))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if len(tensors) != len(leaves) or any(storage_key(leaf) != self.keys.get(operands[0]) for leaf in tensors):
            raise FxImportError(f"{target} returns views and new tensors together")
        properties = call_properties(str(target), info, trees)
        types = [self.types.buffer(leaf) for leaf in tensors]
        op = self.add(ViewOp.create(operands=operands, result_types=types, properties=properties), node.name)
        return _rebuild(value, iter([self._alias(result, operands[0]) for result in op.results]))

    def _window_change(self, node: fx.Node, info: OpInfo, bound: list[object]) -> object:
        twin = view_twin(info.overload)
        if twin is None and self._keeps_window(node, bound[0]):
            return self.values[cast(fx.Node, bound[0])]
        if twin is None:
            raise FxImportError(
                f"{info.overload} changes the storage of its operand; allocate a new tensor of the size you need"
            )
        operands: list[SSAValue] = []
        trees = [self.encode(argument, operands) for argument in bound]
        value = node.meta.get("val")
        if self._viewed(operands, value) is None:
            return self._call(node, op_info(twin), trees, operands, value)
        result = self._view(node, twin, trees, operands, value)
        tensor = self._tensor(operands[0])
        if _is_value(result) and isinstance(tensor, BlockArgument):
            self.changed_arguments[result] = tensor
        return result

    def _tensor(self, value: SSAValue) -> SSAValue:
        """What the program has as the same tensor: the operand that a write returns, the argument that changes."""
        while isinstance(value, OpResult) and isinstance(call := value.op, CallOp) and call.returns is not None:
            index = call.return_indices[value.index]
            if index < 0:
                break
            value = call.operands[index]
        return self.changed_arguments.get(value, value)

    def _keeps_window(self, node: fx.Node, changed: object) -> bool:
        """Whether a call (`resize_` to the size that a tensor has) leaves its operand as it is."""
        before, after = changed.meta.get("val") if isinstance(changed, fx.Node) else None, node.meta.get("val")
        if not isinstance(before, Tensor) or not isinstance(after, Tensor):
            return False
        same = storage_key(before) == storage_key(after)
        return same and self.types.buffer(before) == self.types.buffer(after)

    def _high_level(self, node: fx.Node, op: IrOp, bound: list[object], donated_to: bool) -> object:
        operands: list[SSAValue | list[SSAValue] | None] = []
        attributes: dict[str, Attribute] = {}
        positions: dict[int, int] = {}
        count = 0
        for position, (argument, value) in enumerate(zip(op.schema.arguments, bound, strict=True)):
            if not is_tensor_type(str(argument.type)):
                if value is not None:
                    attributes[argument.name] = self.encode(
                        float(value) if str(argument.type) == "float" and isinstance(value, int) else value, []
                    )
                continue
            positions[position] = count
            found = self._resolve(value)
            operands.append(found)
            count += 1 if isinstance(found, SSAValue) else len(found or ())
        leaves = list(_leaves(node.meta.get("val")))
        given = [position for position in op.activation_indices if bound[position] is not None]
        donated = [positions[position] for position in given] if donated_to else []
        built = build_operation(op, operands, attributes, [self.value_type(leaf) for leaf in leaves], donated)
        self.add(built, node.name)
        return self.results(node.meta.get("val"), built.results)

    def _resolve(self, value: object) -> SSAValue | list[SSAValue] | None:
        found = self.values[value] if isinstance(value, fx.Node) else value
        if found is None or _is_value(found):
            return found
        if is_sequence(found):
            items = [self._resolve(item) for item in found]
            return [item for item in items if isinstance(item, SSAValue)]
        raise FxImportError(f"{value!r} is not a tensor operand")

    def _scalar(self, node: fx.Node, target: Target) -> SSAValue:
        operands = [self.values[argument] if isinstance(argument, fx.Node) else argument for argument in node.args]
        cls = INTEGER_OPERATIONS.get(target)
        if cls is not None and len(operands) == 2 and all(_is_integer(operand) for operand in operands):
            left, right = (self._integer(operand) for operand in operands)
            return self.add(cls.create(operands=[left, right], result_types=[i64]), node.name).results[0]
        values: list[SSAValue] = []
        trees = [self.encode(argument, values) for argument in node.args]
        op = CallOp.create(
            operands=values,
            result_types=[self._type(node.meta["val"])],
            properties=call_properties(target_name(target), None, trees),
        )
        return self.add(op, node.name).results[0]

    def _integer(self, value: object) -> SSAValue:
        if _is_value(value):
            return value
        if not isinstance(value, int):
            raise FxImportError(f"{value!r} is not an integer")
        return self.add(arith.ConstantOp(IntegerAttr(value, i64)), "c").results[0]

    # Values

    def encode(self, value: object, operands: list[SSAValue]) -> Attribute:
        """An argument as a tree over `operands`, which grows by the operands that are new."""

        def operand(item: object) -> Attribute | None:
            if type(item) is fx.Node:
                item = self.values[item]
                if type(item) not in _VALUE_TYPES:
                    return encode(item, operand)
            if type(item) in _VALUE_TYPES:
                for index, known in enumerate(operands):
                    if known is item:
                        return operand_reference(index)
                operands.append(cast(SSAValue, item))
                return operand_reference(len(operands) - 1)
            return item if isinstance(item, Attribute) else None

        return encode(value, operand)

    def _type(self, value: object) -> Attribute:
        """Type of an argument or result; buffers where the storage is one."""
        if isinstance(value, Tensor) and storage_key(value) in self.buffers:
            return self.types.buffer(value)
        return self.value_type(value)

    def value_type(self, value: object) -> Attribute:
        """Type of a value that is not memory; `none` for None."""
        if isinstance(value, Tensor):
            return self.types.tensor(value)
        if value is None:
            return NoneType()
        if (found := scalar_type(value)) is not None:
            return found
        found = NUMBER_TYPES.get(type(value))
        if found is None:
            raise FxImportError(f"a value of type {type(value).__name__} is not supported")
        return found

    def fresh(self, result: SSAValue, leaf: object) -> SSAValue:
        """A result, in a storage of its own if its memory matters."""
        if not isinstance(leaf, Tensor):
            return result
        key = storage_key(leaf)
        if key in self.buffers:
            op = AllocOp.create(operands=[result], result_types=[self.types.buffer(leaf)])
            result = self.add(op, result.name_hint or "buffer").results[0]
        self.keys[result] = key
        return result

    def _alias(self, result: SSAValue, operand: SSAValue) -> SSAValue:
        self.keys[result] = self.keys[operand]
        return result

    def _written(self, result: SSAValue, operand: SSAValue) -> SSAValue:
        """A result that is the operand which the call writes, the same tensor for the caller."""
        if operand in self.changed_arguments:
            self.changed_arguments[result] = self.changed_arguments[operand]
        return self._alias(result, operand)

    def read(self, value: SSAValue) -> SSAValue:
        """The value that a buffer holds now."""
        if not isinstance(value.type, BufferType):
            return value
        op = ReadOp.create(operands=[value], result_types=[value.type.tensor])
        return self.add(op, value.name_hint or "value").results[0]

    def leaves(self, value: object) -> Iterator[object]:
        """Leaves of nested lists and tuples, in order."""
        return _leaves(value)

    def results(self, value: object, results: Sequence[SSAValue]) -> object:
        """Results of a call in the structure of `value`, its meta."""
        if isinstance(value, Tensor):
            return self.fresh(results[0], value)
        fresh = [self.fresh(result, leaf) for result, leaf in zip(results, _leaves(value), strict=True)]
        return _rebuild(value, iter(fresh))

    def add(self, op: Operation, name: str) -> Operation:
        """Append an operation at the current location."""
        op.location = self.location
        if op.results:
            op.results[0].name_hint = name
        self.block.add_op(op)
        return op

    # The function

    def _function(self, name: str) -> FuncOp:
        returned = self.block.last_op
        if returned is None:
            raise FxImportError("the graph has no output")
        function = FuncOp.create(
            properties={
                "sym_name": StringAttr(name),
                "function_type": FunctionType.from_lists(
                    self.block.arg_types, [operand.type for operand in returned.operands]
                ),
            },
            regions=[Region(self.block)],
        )
        attributes: list[dict[str, Attribute]] = [{} for _ in self.block.args]
        touching = [
            op
            for op in self.block.ops
            if "writes" in op.properties or "donated" in op.properties or type(op) is WriteOp
        ]
        for op in touching:
            for buffer in [*written_buffers(op), *(op.operands[index] for index in donated_indices(op))]:
                root = root_of(buffer)
                if isinstance(root, BlockArgument):
                    attributes[root.index][MUTATED] = UnitAttr()
        function.set_argument_attributes(attributes)
        aliases: list[dict[str, Attribute]] = []
        for operand in returned.operands:
            root = root_of(operand) if isinstance(operand.type, BufferType) else None
            aliases.append({ALIASES: IntegerAttr(root.index, i64)} if isinstance(root, BlockArgument) else {})
        function.set_result_attributes(aliases)
        return function


def _is_empty(value: object) -> bool:
    return isinstance(value, Tensor) and any(type(size) is int and size == 0 for size in value.shape)


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            yield from _leaves(item)
    else:
        yield value


def _rebuild(value: object, results: Iterator[SSAValue]) -> object:
    """`value` with its leaves replaced by `results`."""
    if is_sequence(value):
        return [_rebuild(item, results) for item in value]
    return next(results)


def _is_integer(value: object) -> bool:
    return value.type == i64 if _is_value(value) else type(value) is int


def _is_value(item: object) -> TypeGuard[SSAValue]:
    return isinstance(item, SSAValue)
