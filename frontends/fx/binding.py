"""Arguments of calls, bound to their schemas: what every importer and builder of calls needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import fx
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, UnitAttr
from xdsl.ir import Attribute, SSAValue

from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.interning import symbol
from vllm_ir.frontends.fx.schemas import Argument, OpInfo


def bind(node: fx.Node, info: OpInfo) -> list[object]:
    """Arguments of a call node in schema order, defaults filled in."""
    args, kwargs = node.args, node.kwargs
    if len(args) == len(info.arguments):
        return list(args)
    return [*args, *(_bound(node, kwargs, argument) for argument in info.arguments[len(args) :])]


def bind_keywords(node: fx.Node, info: OpInfo, kwargs: Mapping[str, object] | None = None) -> list[object]:
    """Arguments in schema order, all from keywords (those of `node` by default)."""
    return [_bound(node, node.kwargs if kwargs is None else kwargs, argument) for argument in info.arguments]


def _bound(node: fx.Node, kwargs: Mapping[str, object], argument: Argument) -> object:
    if argument.name in kwargs:
        return kwargs[argument.name]
    if argument.has_default:
        return argument.default
    raise FxImportError(f"argument {argument.name!r} of {node.target} is missing")


def call_properties(name: str, info: OpInfo | None, trees: Sequence[Attribute]) -> dict[str, Attribute]:
    """Properties of a call: callee, arguments split as the schema passes them, effects on resources."""
    properties: dict[str, Attribute] = {"callee": symbol(name)}
    positional = len(trees) if info is None else info.positional
    properties["args"] = ArrayAttr(trees[:positional])
    if info is not None:
        if positional < len(trees):
            keywords = zip(info.arguments[positional:], trees[positional:], strict=True)
            properties["kwargs"] = DictionaryAttr({argument.name: tree for argument, tree in keywords})
        if info.random:
            properties["random"] = UnitAttr()
        if info.external:
            properties["external"] = UnitAttr()
    return properties


def memory_effects(
    info: OpInfo, trees: Sequence[Attribute], operands: Sequence[SSAValue]
) -> tuple[list[int], list[int]]:
    """Operands whose buffers a call reads, and operands that it writes."""
    reads = [index for index, operand in enumerate(operands) if type(operand.type) is BufferType]
    if info.metadata_only:
        reads.clear()
    if not info.writes:
        return reads, []
    written = sorted(set(operand_indices(trees[position] for position in info.writes)))
    outputs = set(operand_indices(trees[position] for position in info.writes if info.arguments[position].is_out))
    return [index for index in reads if index not in outputs], written
