"""Calls whose outputs (`out=`) are not told by the tensors that they give: as functional calls, and writes.

PyTorch's own kernels pass outputs without elements to each other (`out=torch.empty(0)`), which grow to hold results.
There is no memory that anybody could have seen before. And some fake implementations give new tensors for results that
are the outputs by the operator's schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, fx
from xdsl.ir import BlockArgument, SSAValue

from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.vllm_ir.function import root_of
from vllm_ir.dialects.vllm_ir.memory import WriteOp
from vllm_ir.dialects.vllm_ir.types import shape_of
from vllm_ir.frontends.fx.binding import call_properties, memory_effects
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.schemas import OpInfo, functional_twin, op_info
from vllm_ir.frontends.fx.storages import storage_key

if TYPE_CHECKING:
    from vllm_ir.frontends.fx.graph_import import GraphImporter


def import_outputs(
    importer: GraphImporter, node: fx.Node, info: OpInfo, bound: Sequence[object], leaves: Sequence[object]
) -> list[SSAValue] | None:
    """Import a call as its functional form, and writes of the results to outputs of their shape; returns the buffers.

    `bound` are its arguments, `leaves` the results. None if the results are the outputs as they are or may not be
    outputs, and if one grows that others may see. Raises `FxImportError` for an output that grows where the fake
    implementation gives another tensor: what follows uses the output, whose size is not known then.
    """
    twin = functional_twin(info.overload)
    outputs = [_values(importer, bound[position]) for position in info.writes]
    if twin is None or twin.fresh or not len(leaves) == len(outputs) == sum(map(len, outputs)):
        return None
    pairs = [(leaf, output) for leaf, (output,) in zip(leaves, outputs, strict=True) if isinstance(leaf, Tensor)]
    if len(pairs) < len(outputs) or all(_is_output(importer, *pair) for pair in pairs):
        return None
    grown = [output for leaf, output in pairs if not _holds(importer, leaf, output)]
    if any(isinstance(root_of(output), BlockArgument) or 0 not in shape_of(output.type) for output in grown):
        return None
    if any(importer.keys.get(output) != storage_key(leaf) for leaf, output in pairs if output in grown):
        raise FxImportError(
            f"the fake implementation of {info.name} gives another tensor than the output that grows; "
            "call it without out="
        )
    arguments = [bound[position] for position in twin.arguments]
    ordered = [pairs[twin.updated.index(place)][0] for place in range(len(pairs))]
    results = _call(importer, node, op_info(twin.overload), arguments, ordered)
    found: list[SSAValue] = []
    for (leaf, output), place in zip(pairs, twin.updated, strict=True):
        if output in grown:
            found.append(importer.fresh(results[place], leaf))
        else:
            importer.add(WriteOp.create(operands=[results[place], output]), node.name)
            found.append(output)
    return found


def _is_output(importer: GraphImporter, leaf: Tensor, output: SSAValue) -> bool:
    """Whether a result is known to be the output."""
    return importer.keys.get(output) == storage_key(leaf) and output.type == importer.types.buffer(leaf)


def _holds(importer: GraphImporter, leaf: Tensor, output: SSAValue) -> bool:
    """Whether an output can hold a result."""
    same = importer.keys.get(output) == storage_key(leaf)
    return _is_output(importer, leaf, output) if same else shape_of(output.type) == shape_of(importer.value_type(leaf))


def _call(
    importer: GraphImporter, node: fx.Node, info: OpInfo, bound: Sequence[object], leaves: Sequence[Tensor]
) -> Sequence[SSAValue]:
    operands: list[SSAValue] = []
    trees = [importer.encode(argument, operands) for argument in bound]
    properties = call_properties(info.name, info, trees)
    reads, _ = memory_effects(info, trees, operands)
    if reads:
        properties["reads"] = index_array(reads)
    types = [importer.value_type(leaf) for leaf in leaves]
    return importer.add(CallOp.create(operands=operands, result_types=types, properties=properties), node.name).results


def _values(importer: GraphImporter, argument: object) -> list[SSAValue]:
    """The values that an argument consists of."""
    operands: list[SSAValue] = []
    importer.encode(argument, operands)
    return operands
