"""The end of an exported function: final writes, windows that the caller gets back, and what is returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, fx
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.fx.errors import located
from vllm_ir.backends.fx.function import FunctionExporter, GraphBuilder
from vllm_ir.backends.fx.layout import tensor_of, with_all_strides, with_strides
from vllm_ir.dialects.vllm_ir.function import DONATED, WINDOW, FuncOp, ReturnOp, root_of
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, sizes_of, strides_of
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.storages import storage_key
from vllm_ir.frontends.fx.torch_objects import output_node
from vllm_ir.frontends.fx.types import static_window, symbolic
from vllm_ir.frontends.fx.values import decode

aten = torch.ops.aten


class Results:
    """The values that a function computes for its tail, safe to use once the tail starts to write.

    A value that would be read after a write to its memory, or that is returned as a new tensor but shares memory with
    an argument, a constant or another result, is cloned here. Memory that was given away may come back as a new tensor.
    """

    def __init__(self, exporter: FunctionExporter, tail: Sequence[Operation]) -> None:
        self.exporter = exporter
        self.builder = exporter.builder
        self.nodes: dict[SSAValue, object] = {}
        self._taken = storages_of_inputs(exporter)
        self._written: set[int] = set()
        for op in tail:
            self.builder.at(op)
            with located(op):
                self._prepare(op)

    def _prepare(self, op: Operation) -> None:
        match op:
            case WriteOp():
                self._for_write(op)
            case AllocOp():
                self._fresh(op.init, op.buffer)
            case ReturnOp():
                for value in op.operands:
                    if not isinstance(value.type, BufferType):
                        self._fresh(value, value)
            case _:
                pass

    def _for_write(self, op: WriteOp) -> None:
        node = self.exporter.node(op.value)
        destination = self._destination(op.buffer)
        key = storage_key(tensor_of(node))
        shared = storage_key(destination) == key and not _same_window(tensor_of(node), destination)
        if op.value not in self.nodes and (shared or key in self._written):
            node = self.builder.copy(node, "its memory is written before it is used")
        self.nodes.setdefault(op.value, node)
        self._written.add(storage_key(destination))

    def _destination(self, buffer: SSAValue) -> Tensor:
        return tensor_of(self.exporter.node(root_of(buffer)))

    def _fresh(self, value: SSAValue, kind: SSAValue) -> None:
        node = self.exporter.values.get(value)
        if not isinstance(node, fx.Node):
            self.nodes[value] = node
            return
        fake = node.meta["val"]
        if not isinstance(fake, Tensor):
            self.nodes[value] = node
            return
        if value in self.nodes and isinstance(known := self.nodes[value], fx.Node):
            # Already there for a write: the write only copies from it.
            node = known
        node = with_strides(self.builder.emit, node, kind.type)
        if storage_key(tensor_of(node)) in self._taken:
            copy = self.builder.copy(node, "it is returned as a new tensor")
            node = with_strides(self.builder.emit, copy, kind.type)
        self._taken.add(storage_key(tensor_of(node)))
        self.nodes[value] = node


def storages_of_inputs(exporter: FunctionExporter) -> set[int]:
    """Keys of the memory of arguments and constants, but not of memory that was given away."""
    graph, function = exporter.builder.graph, exporter.function
    given = {
        exporter.values[argument]
        for index, argument in enumerate(function.block.args)
        if DONATED in function.argument_attributes(index)
    }
    inputs = [node for node in graph.nodes if node.op in ("placeholder", "get_attr") and node not in given]
    return {storage_key(n.meta["val"]) for n in inputs if isinstance(n.meta["val"], Tensor)}


def _same_window(first: Tensor, second: Tensor) -> bool:
    def window(tensor: Tensor) -> list[object]:
        return [symbolic(part) for part in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]

    return first.dtype == second.dtype and window(first) == window(second)


class TailExporter:
    """Emits the tail into a graph where arguments and results are known as nodes."""

    def __init__(
        self,
        function: FuncOp,
        builder: GraphBuilder,
        argument: Callable[[BlockArgument], fx.Node],
        results: Mapping[SSAValue, object],
        *,
        trust_values: bool = True,
    ) -> None:
        """Emit for `function`; without `trust_values`, results may lack strides that their values have."""
        self.function = function
        self.builder = builder
        self.argument = argument
        self.results = results
        self.trust_values = trust_values
        self.buffers: dict[SSAValue, fx.Node] = {}

    def run(self, tail: Sequence[Operation]) -> None:
        """Emit everything up to and including the output."""
        for op in tail:
            self.builder.at(op)
            with located(op):
                self._emit(op)

    def _emit(self, op: Operation) -> None:
        match op:
            case WriteOp():
                self._write(op)
            case AllocOp():
                self.buffers[op.buffer] = self._result(op.init)
            case ReturnOp():
                self._return(op)
            case _:
                pass

    def _result(self, value: SSAValue) -> fx.Node:
        node = self.results[value]
        if not isinstance(node, fx.Node):
            raise VerifyException(f"%{value.name_hint} is not a tensor")
        return node

    def buffer(self, value: SSAValue) -> fx.Node:
        """The node of a window, made by its views where it is not there yet."""
        if value not in self.buffers:
            owner = value.owner
            if isinstance(value, BlockArgument):
                self.buffers[value] = self.argument(value)
            elif isinstance(owner, ViewOp):
                self._view(owner)
            else:
                raise VerifyException(f"%{value.name_hint} is not a window onto an argument or a new storage")
        return self.buffers[value]

    def _view(self, op: ViewOp) -> None:
        operands: list[object] = [self.buffer(op.base)]
        operands += [self.results[operand] for operand in op.operands[1:]]
        args = tuple(decode(tree, operands, str) for tree in op.args.data)
        kwargs = {name: decode(tree, operands, str) for name, tree in (op.kwargs.data.items() if op.kwargs else ())}
        self.builder.at(op)
        node = self.builder.emit(resolve(op.target), args, kwargs)
        if isinstance(node.meta["val"], list | tuple):
            for index, result in enumerate(op.results):
                self.buffers[result] = self.builder.item(node, index)
        else:
            self.buffers[op.results[0]] = node

    def _write(self, op: WriteOp) -> None:
        destination, value = self.buffer(op.buffer), self._result(op.value)
        if value is not destination and not _is_same_memory(value, destination):
            self.builder.emit(aten.copy_.default, (destination, value))

    def _windows(self) -> None:
        """Give arguments whose shape or strides change their new window."""
        for index, argument in enumerate(self.function.block.args):
            window = self.function.argument_attributes(index).get(WINDOW)
            if isinstance(window, BufferType):
                if static_window(window) is None:
                    raise VerifyException(f"%{argument.name_hint} gets a window of dynamic size")
                sizes, strides = list(sizes_of(window)), list(strides_of(window) or ())
                node = self.argument(argument)
                self.builder.emit(aten.as_strided_.default, (node, sizes, strides, offset_of(window)))

    def _returned(self, value: SSAValue) -> object:
        node = self.results[value]
        if not isinstance(node, fx.Node) or not isinstance(node.meta["val"], Tensor):
            return node
        return with_all_strides(self.builder.emit, node, value.type, trust_values=self.trust_values)

    def _return(self, op: ReturnOp) -> None:
        operands = [
            self.buffer(value) if isinstance(value.type, BufferType) else self._returned(value) for value in op.operands
        ]
        self._windows()  # behind the views, which are views of the windows that arguments have at entry
        output_node(self.builder.graph, decode(op.structure, operands, str))


def _is_same_memory(first: fx.Node, second: fx.Node) -> bool:
    one, other = first.meta["val"], second.meta["val"]
    return (
        isinstance(one, Tensor)
        and isinstance(other, Tensor)
        and storage_key(one) == storage_key(other)
        and _same_window(one, other)
    )
