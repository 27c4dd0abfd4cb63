"""Calls that write memory, as calls that return new values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._ops import OpOverload
from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.functionalize.donation import refuse_donated
from vllm_ir.conversions.functionalize.overlap import check_operands
from vllm_ir.conversions.functionalize.storage import Storages, Window
from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of, element_type_of, shape_of, sizes_of
from vllm_ir.frontends.fx.build import CallBuilder, python_argument
from vllm_ir.frontends.fx.inference import infer_types
from vllm_ir.frontends.fx.schemas import OpInfo, Twin, functional_twin, op_info, resolve
from vllm_ir.frontends.fx.types import dtype_of

aten = torch.ops.aten


def functionalize_call(op: CallOp, storages: Storages, b: CallBuilder) -> None:
    """Replace a writing call; its windows get their new values and its results are replaced."""
    overload = resolve(op.target)
    if not isinstance(overload, OpOverload):
        fail(op, "writes buffers but is not an operator with a schema")
    info = op_info(overload)
    for operand in op.operands:
        if isinstance(operand.type, BufferType):
            refuse_donated(op, storages.windows[operand], operand)
    check_operands(op, info, storages)
    twin = functional_twin(overload)
    if overload is aten.copy_.default:
        _copy(op, storages, b)
    elif twin is not None:
        _call_twin(op, info, twin, storages, b)
    else:
        _call_with_updates(op, info, storages, b)
    for result, index in zip(op.results, _returns(op), strict=True):
        if index >= 0:
            storages.add_alias(result, op.operands[index])


def _returns(op: CallOp) -> Sequence[int]:
    return [-1] * len(op.results) if op.returns is None else op.returns.get_values()


def _copy(op: CallOp, storages: Storages, b: CallBuilder) -> None:
    """`copy_` is its source, cast and expanded: the old contents play no part."""
    destination = storages.windows[op.operands[0]]
    source = python_argument(op.args.data[1], op.operands)
    if not isinstance(source, SSAValue):
        fail(op, "copies something that is not a tensor")
    destination.assign(b, fit(b, current(source, storages, b), destination))


def fit(b: CallBuilder, value: SSAValue, destination: Window) -> SSAValue:
    """`value` on the device, in the element type and in the shape of `destination`."""
    window = destination.type
    element, shape = window.element_type, shape_of(window)
    if device_of(value.type) != device_of(window):
        device = torch.device(device_of(window))
        value = b.value(
            aten._to_copy.default, [value], TensorType(element, shape_of(value.type)), dtype=element, device=device
        )
    value = cast(b, value, element)
    if sizes_of(value.type) != sizes_of(window):
        sizes: list[int | SSAValue] = list(shape)
        if DYNAMIC_INDEX in shape:
            sizes = b.sizes(destination.value(b))
        value = b.value(aten.expand.default, [value, sizes], window.tensor)
    return value


def cast(b: CallBuilder, value: SSAValue, element: Attribute) -> SSAValue:
    """`value` with elements of type `element`."""
    kind = value.type
    if element_type_of(kind) == element or not isinstance(kind, TensorType):
        return value
    result = TensorType(element, kind.shape, kind.encoding)
    dtype = dtype_of(element)
    return b.value(torch.ops.prims.convert_element_type.default, [value, dtype], result)


def current(value: SSAValue, storages: Storages, b: CallBuilder) -> SSAValue:
    """What an operand holds now."""
    return storages.windows[value].value(b) if isinstance(value.type, BufferType) else value


def is_layout_sensitive(op: CallOp) -> bool:
    """Whether the result of the call may depend on the strides of its operands."""
    target = resolve(op.target) if not op.target.startswith("python.") else None
    return isinstance(target, OpOverload) and op_info(target).layout_sensitive


def relayout(b: CallBuilder, value: SSAValue, buffer: SSAValue) -> SSAValue:
    """`value` as an operator that looks at strides must see it: laid out as the buffer it stands for."""
    if not isinstance(buffer.type, BufferType) or value.type == buffer.type.tensor:
        return value
    return b.add(RelayoutOp.create(operands=[value], result_types=[buffer.type.tensor])).results[0]


def _written(op: CallOp, info: OpInfo) -> list[int]:
    """Operands that are written, in the order of the schema's arguments and of their lists."""
    arguments = op.arguments()
    return [index for position in info.writes for index in operand_indices([arguments[position]])]


def _call_twin(op: CallOp, info: OpInfo, twin: Twin, storages: Storages, b: CallBuilder) -> None:
    trees = op.arguments()
    values: dict[int, SSAValue] = {}
    for index in operand_indices(trees[position] for position in twin.arguments):
        if index not in values:
            values[index] = current(op.operands[index], storages, b)
    operands = [values.get(index, operand) for index, operand in enumerate(op.operands)]
    arguments = [python_argument(trees[position], operands) for position in twin.arguments]
    written = _written(op, info)
    windows = [storages.windows[op.operands[index]] for index in written]
    fresh = [result for result, index in zip(op.results, _returns(op), strict=True) if index < 0]
    kept = [trees[position] for position in twin.arguments]
    expected = [result.type for result in fresh] + [window.type.tensor for window in windows]
    types = _result_types(op, expected, infer_types(twin.overload, kept, operands))
    call = b.call(twin.overload, arguments, types)
    for old, new in zip(fresh, call.results, strict=False):
        old.replace_all_uses_with(new)
    _assign(op, windows, call.results[len(fresh) :], b)


def _result_types(op: CallOp, expected: Sequence[Attribute], inferred: Sequence[Attribute]) -> list[Attribute]:
    """The types that the twin gives: like those that the writing call has, but perhaps of a promoted element type."""
    if len(inferred) != len(expected):
        fail(op, f"its functional form gives {len(inferred)} results instead of {len(expected)}")
    types: list[Attribute] = []
    for want, got in zip(expected, inferred, strict=True):
        if not isinstance(want, TensorType) or not isinstance(got, TensorType):
            types.append(want)
            continue
        if DYNAMIC_INDEX not in want.get_shape() and want.get_shape() != got.get_shape():
            fail(op, f"the result has shape {got.get_shape()}, the destination {want.get_shape()}")
        types.append(TensorType(got.element_type, want.shape, want.encoding))
    return types


def _assign(op: CallOp, windows: Sequence[Window], values: Sequence[SSAValue], b: CallBuilder) -> None:
    for window, value in zip(windows, values, strict=True):
        if isinstance(value.type, TensorType):
            window.assign(b, cast(b, value, window.type.element_type))


def _call_with_updates(op: CallOp, info: OpInfo, storages: Storages, b: CallBuilder) -> None:
    """The call itself, as if on copies of what it writes."""
    operands = [
        relayout(b, current(operand, storages, b), operand) if info.layout_sensitive else current(operand, storages, b)
        for operand in op.operands
    ]
    written = _written(op, info)
    windows = [storages.windows[op.operands[index]] for index in written]
    fresh = [result for result, index in zip(op.results, _returns(op), strict=True) if index < 0]
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
