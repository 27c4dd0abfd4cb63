"""`auto_functionalized` calls: a writing operator as if on copies, spelled out as allocations, views and one call.

The form is PyTorch's (`torch/_higher_order_ops/auto_functionalize.py`): version 1 takes the operator's arguments and
returns its results and the new values of what it writes; version 2 takes whole bases, and for each written argument the
view of a base that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import (
    AliasViewInfo,
    AsStridedViewInfo,
    NotView,
    SliceViewInfo,
    ViewInfo,
    get_mutable_args_from_schema,
    read_view_information_from_args,
)
from torch._ops import OpOverload
from xdsl.ir import SSAValue

from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.binding import bind, bind_keywords, call_properties
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.graph_import import GraphImporter
from vllm_ir.frontends.fx.opaque import Written
from vllm_ir.frontends.fx.schemas import OpInfo, op_info
from vllm_ir.frontends.fx.torch_objects import map_nodes, schema_of
from vllm_ir.frontends.fx.values import is_sequence


def import_v1(importer: GraphImporter, node: fx.Node, overload: OpOverload) -> object:
    """Results of `auto_functionalized(overload, **arguments)`."""
    info = op_info(overload)
    bound = bind_keywords(node, info)

    def copy(value: object) -> object:
        if is_sequence(value):
            return [copy(item) for item in value]
        return _copy(importer, value) if isinstance(value, fx.Node) else value

    for position in info.writes:
        bound[position] = copy(bound[position])
    return _call(importer, node, info, bound, [bound[position] for position in info.writes], node.meta["val"])


def import_opaque(importer: GraphImporter, node: fx.Node, written: Written) -> object:
    """Results of an opaque operator (`opaque.py`): those of a writing one on copies, and what the copies hold then."""
    info = op_info(written.overload)
    bound = bind(node, info)

    def copy(value: object) -> object:
        if is_sequence(value):
            return [copy(item) for item in value]
        return _copy(importer, value) if isinstance(value, fx.Node) else value

    names = [argument.name for argument in info.arguments]
    positions = [names.index(name) for name in written.arguments]
    for position in positions:
        bound[position] = copy(bound[position])
    value = node.meta["val"]
    several = len(schema_of(cast(OpOverload, node.target)).returns) > 1
    copies = [bound[position] for position in positions]
    results = _call(importer, node, info, bound, copies, list(value) if several else [value])
    return results if several else results[0]


def import_v2(importer: GraphImporter, node: fx.Node, overload: OpOverload) -> object:
    """Results of `auto_functionalized_v2(overload, **arguments, _all_bases=[…])`."""
    info = op_info(overload)
    kwargs = dict(node.kwargs)
    bases = kwargs.pop("_all_bases")
    if not is_sequence(bases) or "_only_clone_these_bases" in kwargs:
        raise FxImportError("this form of auto_functionalized_v2 is not supported")
    copies = [_copy(importer, base) for base in bases if isinstance(base, fx.Node)]
    fakes = [base.meta["val"] for base in bases if isinstance(base, fx.Node)]
    names, types = get_mutable_args_from_schema(schema_of(overload))
    views = read_view_information_from_args(names, types, kwargs, fakes)
    bound = bind_keywords(node, info, {**kwargs, **dict.fromkeys(names)})
    for position in info.writes:
        view = views[info.arguments[position].name]
        if isinstance(view, list):  # the operator takes a list here
            items = cast("list[ViewInfo | None]", view)
            bound[position] = [_view(importer, item, copies, fakes) for item in items]
        else:
            bound[position] = _view(importer, view, copies, fakes)
    return _call(importer, node, info, bound, copies, node.meta["val"])


def _copy(importer: GraphImporter, node: fx.Node) -> SSAValue:
    """A new buffer with the contents of a value, in its layout."""
    value, fake = importer.values[node], node.meta["val"]
    if not isinstance(value, SSAValue) or not isinstance(fake, Tensor):
        raise FxImportError(f"{node} is written but is not a tensor")
    op = AllocOp.create(operands=[importer.read(cast(SSAValue, value))], result_types=[importer.types.buffer(fake)])
    return importer.add(op, node.name).results[0]


def _view(
    importer: GraphImporter, info: ViewInfo | None, copies: Sequence[SSAValue], fakes: Sequence[Tensor]
) -> SSAValue | None:
    if info is None:
        return None
    base = copies[info.base_index]
    match info:
        case NotView():
            return base
        case AliasViewInfo():
            overload, arguments = torch.ops.aten.alias.default, []
        case SliceViewInfo():
            overload, arguments = torch.ops.aten.slice.Tensor, [info.dim, info.start, info.end, 1]
        case AsStridedViewInfo():
            overload, arguments = (
                torch.ops.aten.as_strided.default,
                [list(info.size), list(info.stride), info.storage_offset],
            )
        case _:
            raise FxImportError(f"{type(info).__name__} of auto_functionalized_v2 is not supported")
    operands = [base]
    trees = [importer.encode(argument, operands) for argument in [base, *arguments]]
    window = overload(fakes[info.base_index], *map_nodes(arguments, lambda item: item.meta["val"]))
    op = ViewOp.create(
        operands=operands,
        result_types=[importer.types.buffer(window)],
        properties=call_properties(str(overload), op_info(overload), trees),
    )
    return importer.add(op, "view").results[0]


def _call(
    importer: GraphImporter,
    node: fx.Node,
    info: OpInfo,
    bound: Sequence[object],
    copies: Sequence[object],
    value: Sequence[object],
) -> list[object]:
    """The call on copies; returns its results, followed by what the copies (or lists of them, or None) hold then.

    `value` are the fake values of all of these.
    """
    operands: list[SSAValue] = []
    trees = [importer.encode(argument, operands) for argument in bound]
    properties = call_properties(str(info.overload), info, trees)
    written = sorted({index for position in info.writes for index in operand_indices([trees[position]])})
    read = [index for index, operand in enumerate(operands) if isinstance(operand.type, BufferType)]
    if read:
        properties["reads"] = index_array(read)
    if written:
        properties["writes"] = index_array(written)
    results = list(value)[: len(value) - len(copies)]
    leaves = [leaf for leaf in importer.leaves(results) if leaf is not None or schema_of(info.overload).returns]
    op = CallOp.create(
        operands=operands, result_types=[importer.value_type(leaf) for leaf in leaves], properties=properties
    )
    importer.add(op, node.name)
    own = importer.results(results, op.results) if leaves else [None] * len(results)
    return [*_as_list(own), *(_new_value(importer, copy) for copy in copies)]


def _new_value(importer: GraphImporter, copy: object) -> object:
    if is_sequence(copy):
        return [_new_value(importer, item) for item in copy]
    return importer.read(cast(SSAValue, copy)) if isinstance(copy, SSAValue) else None


def _as_list(value: object) -> list[object]:
    return list(value) if is_sequence(value) else [value]
