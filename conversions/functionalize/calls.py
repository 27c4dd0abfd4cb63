"""Calls that write memory, as calls that return new values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import cast

import torch
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, TensorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.functionalize.donation import refuse_donated
from vllm_ir.conversions.functionalize.overlap import check_operands, merge_operands
from vllm_ir.conversions.functionalize.storage import Storages, Window
from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.dialects.vllm_ir.types import (
    BufferType,
    contiguous_strides,
    device_of,
    element_type_of,
    shape_of,
    sizes_of,
    strides_of,
)
from vllm_ir.frontends.fx.build import CallBuilder, python_argument
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.inference import infer_types
from vllm_ir.frontends.fx.schemas import OpInfo, Twin, functional_twin, op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import dtype_of, is_shaped, is_tensor

aten = torch.ops.aten


def functionalize_call(op: CallOp, storages: Storages, b: CallBuilder) -> None:
    """Replace a writing call; its windows get their new values and its results are replaced."""
    overload = resolve(op.target)
    if not is_overload(overload):
        fail(op, "writes buffers but is not an operator with a schema")
    info = op_info(overload)
    for operand in op.operands:
        if isinstance(operand.type, BufferType):
            refuse_donated(op, storages.windows[operand], operand)
    check_operands(op, info, storages)
    # The same window may be another argument, which the caller tells apart.
    returned = [op.operands[index] if index >= 0 else None for index in op.return_indices]
    merge_operands(op, storages)
    if overload is aten.copy_.default:
        _copy(op, storages, b)
    elif not _call_twin(op, info, storages, b):
        _call_with_updates(op, info, storages, b)
    for result, operand in zip(op.results, returned, strict=True):
        if operand is not None:
            storages.add_alias(result, operand)


def _copy(op: CallOp, storages: Storages, b: CallBuilder) -> None:
    """`copy_` is its source, cast and expanded: the old contents play no part."""
    destination = storages.windows[op.operands[0]]
    source = python_argument(op.args.data[1], op.operands)
    if not isinstance(source, SSAValue):
        fail(op, "copies something that is not a tensor")
    destination.assign(b, fit(b, current(cast(SSAValue, source), storages, b), destination))


def fit(b: CallBuilder, value: SSAValue, destination: Window) -> SSAValue:
    """`value` on the device, in the element type and in the shape of `destination`."""
    window = destination.type
    element, shape = window.element_type, shape_of(window)
    if device_of(value.type) != device_of(window):
        device = torch.device(device_of(window))
        value = b.value(
            aten._to_copy.default, [value], TensorType(element, shape_of(value.type)), dtype=element, device=device
        )
    value = convert(b, value, element)
    if sizes_of(value.type) != sizes_of(window):
        sizes: list[int | SSAValue] = list(shape)
        if DYNAMIC_INDEX in shape:
            sizes = b.sizes(destination.value(b))
        value = b.value(aten.expand.default, [value, sizes], window.tensor)
    return value


def convert(b: CallBuilder, value: SSAValue, element: Attribute) -> SSAValue:
    """`value` with elements of type `element`."""
    kind = value.type
    if element_type_of(kind) == element or not is_tensor(kind):
        return value
    result = TensorType(element, kind.shape, kind.encoding)
    dtype = dtype_of(element)
    return b.value(torch.ops.prims.convert_element_type.default, [value, dtype], result)


def current(value: SSAValue, storages: Storages, b: CallBuilder) -> SSAValue:
    """What an operand holds now."""
    return storages.windows[value].value(b) if isinstance(value.type, BufferType) else value


def is_layout_sensitive(op: Operation) -> bool:
    """Whether what an operation computes may depend on the strides of its operands."""
    target = resolve(op.target) if isinstance(op, CallOp) and not op.target.startswith("python.") else None
    return is_overload(target) and op_info(target).layout_sensitive


def relayout(b: CallBuilder, value: SSAValue, buffer: SSAValue) -> SSAValue:
    """`value` as an operator that looks at strides must see it: laid out as the buffer it stands for."""
    if not isinstance(buffer.type, BufferType) or value.type == buffer.type.tensor:
        return value
    return b.add(RelayoutOp.create(operands=[value], result_types=[buffer.type.tensor])).results[0]


def _written(op: CallOp, info: OpInfo) -> list[int]:
    """Operands that are written, in the order of the schema's arguments and of their lists."""
    arguments = op.arguments()
    return [index for position in info.writes for index in operand_indices([arguments[position]])]


def _read(operand: SSAValue, info: OpInfo, storages: Storages, b: CallBuilder) -> SSAValue:
    """What an operand holds now, in the layout that the operator expects."""
    value = current(operand, storages, b)
    return relayout(b, value, operand) if info.layout_sensitive else value


def _fresh(op: CallOp) -> list[OpResult]:
    """Results that are new tensors."""
    return [result for result, index in zip(op.results, op.return_indices, strict=True) if index < 0]


def _call_twin(op: CallOp, info: OpInfo, storages: Storages, b: CallBuilder) -> bool:
    """Call the functional form of the operator; False if there is none that does the same with these operands."""
    twin = functional_twin(info.overload)
    written = _written(op, info)
    windows = [storages.windows[op.operands[index]] for index in written]
    if twin is None or _depends_on_order(op, info) or (info.random and not all(map(_is_row_major, windows))):
        return False
    trees = op.arguments()
    kept = [trees[position] for position in twin.arguments]
    used = set(operand_indices(kept))
    operands = [
        _read(operand, info, storages, b) if index in used else operand for index, operand in enumerate(op.operands)
    ]
    fresh = _fresh(op)
    expected = [result.type for result in fresh] + [window.type.tensor for window in windows]
    types = _result_types(op, twin, kept, operands, expected)
    if types is None:
        return False
    call = b.call(twin.overload, [python_argument(tree, operands) for tree in kept], types)
    for old, new in zip(fresh, call.results, strict=False):
        old.replace_all_uses_with(new)
    for window, value in zip(windows, call.results[len(fresh) :], strict=True):
        if is_tensor(value.type):
            window.assign(b, convert(b, value, window.type.element_type))
    return True


def _is_row_major(window: Window) -> bool:
    """Whether random numbers fill the window in the order in which they fill a new tensor."""
    return strides_of(window.type) in (None, contiguous_strides(shape_of(window.type)))


def _depends_on_order(op: CallOp, info: OpInfo) -> bool:
    """Whether the operator may read, or write once more, what it has written before.

    Operators on single tensors read all before they write; those on lists go from item to item.
    """
    written: dict[int, int] = {}
    others: list[tuple[int, int]] = []
    for position, tree in enumerate(op.arguments()):
        for place, index in enumerate(operand_indices([tree])):
            if position not in info.writes:
                others.append((index, place if isinstance(tree, ArrayAttr) else -1))
            elif index in written:
                return True
            else:
                written[index] = place
    in_lists = any(isinstance(op.arguments()[position], ArrayAttr) for position in info.writes)
    return in_lists and any(index in written and place != written[index] for index, place in others)


def _result_types(
    op: CallOp, twin: Twin, arguments: Sequence[Attribute], operands: Sequence[SSAValue], expected: Sequence[Attribute]
) -> list[Attribute] | None:
    """The types that the twin gives: those of the writing call, but perhaps of a promoted element type.

    None if its results are others, or not known from types alone.
    """
    try:
        inferred = infer_types(twin.overload, arguments, operands)
    except FxImportError as error:
        fail(op, error.reason)
    if inferred is None or len(inferred) != len(expected):
        return None
    types: list[Attribute] = []
    dynamic = any(DYNAMIC_INDEX in shape_of(operand.type) for operand in operands if is_shaped(operand.type))
    for want, got in zip(expected, inferred, strict=True):
        if not is_tensor(want) or not is_tensor(got):
            types.append(want)
            continue
        if want.get_shape() != got.get_shape() and not dynamic:
            fail(
                op,
                f"gives a tensor of shape {list(got.get_shape())} to one of shape {list(want.get_shape())}; "
                "resizing is not supported: allocate a tensor of the right size",
            )
        if not _can_cast(got.element_type, want.element_type):
            fail(op, f"computes {got.element_type}, which eager does not write to {want.element_type}; cast it first")
        types.append(TensorType(got.element_type, want.shape, want.encoding))
    return types


@cache
def _can_cast(source: Attribute, destination: Attribute) -> bool:
    """Whether operators write results of one element type to tensors of the other, by PyTorch's rules of promotion."""
    one, other = dtype_of(source), dtype_of(destination)
    return one is None or other is None or torch.can_cast(one, other)


def _call_with_updates(op: CallOp, info: OpInfo, storages: Storages, b: CallBuilder) -> None:
    """The call itself, as if on copies of what it writes."""
    operands = [_read(operand, info, storages, b) for operand in op.operands]
    written = list(dict.fromkeys(_written(op, info)))
    windows = [storages.windows[op.operands[index]] for index in written]
    fresh = _fresh(op)
    properties = {
        name: value for name, value in op.properties.items() if name not in ("reads", "writes", "returns", "updates")
    }
    properties["updates"] = index_array(written)
    call = CallOp.create(
        operands=operands,
        result_types=[*(result.type for result in fresh), *(operands[index].type for index in written)],
        properties=properties,
    )
    b.add(call)
    for old, new in zip(fresh, call.results, strict=False):
        old.replace_all_uses_with(new)
    for window, value in zip(windows, call.results[len(fresh) :], strict=True):
        window.assign(b, value)
