"""Higher-order operators: control flow over sub-graphs, and calls wrapped by `auto_functionalized`."""

from __future__ import annotations

from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, SymbolRefAttr
from xdsl.ir import Attribute, SSAValue

from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx import auto_functionalized
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.graph_import import GraphImporter
from vllm_ir.frontends.fx.storages import storage_key


def import_higher_order(importer: GraphImporter, node: fx.Node, target: HigherOrderOperator) -> object:
    """The results of one higher-order call."""
    callee = node.args[0] if node.args else None
    if isinstance(callee, OpOverload) and "_all_bases" in node.kwargs:
        return auto_functionalized.import_v2(importer, node, callee)
    if isinstance(callee, OpOverload) and target.name() == "auto_functionalized":
        return auto_functionalized.import_v1(importer, node, callee)
    return _import_control_flow(importer, node, target)


def _import_control_flow(importer: GraphImporter, node: fx.Node, target: HigherOrderOperator) -> object:
    operands: list[SSAValue] = []
    args = [importer.encode(argument, operands) for argument in node.args]
    kwargs: dict[str, Attribute] = {name: importer.encode(argument, operands) for name, argument in node.kwargs.items()}
    properties: dict[str, Attribute] = {
        "callee": SymbolRefAttr(f"higher_order.{target.name()}"),
        "args": ArrayAttr(args),
    }
    if kwargs:
        properties["kwargs"] = DictionaryAttr(kwargs)
    reads = [index for index, operand in enumerate(operands) if isinstance(operand.type, BufferType)]
    if reads:
        properties["reads"] = index_array(reads)
    value = node.meta.get("val")
    leaves = list(importer.leaves(value))
    keys = {importer.keys.get(operand) for operand in operands}
    for leaf in leaves:
        if isinstance(leaf, Tensor) and storage_key(leaf) in keys:
            raise FxImportError(
                f"{target.name()} returns a view of an operand; return a clone of it from the sub-graph"
            )
    op = CallOp.create(
        operands=operands, result_types=[importer.value_type(leaf) for leaf in leaves], properties=properties
    )
    importer.add(op, node.name)
    return importer.results(value, op.results)
