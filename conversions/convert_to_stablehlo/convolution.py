"""Convolutions of any number of spatial dimensions, transposed ones as well.

Products of narrow floating-point types are summed in `f32` and rounded once, the bias included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter
from vllm_ir.conversions.convert_to_stablehlo.dtypes import computation_type, element, shape
from vllm_ir.dialects import stablehlo
from vllm_ir.dialects.stablehlo.convolution import labels


def spread(values: Sequence[int], count: int) -> list[int]:
    """One number for each spatial dimension; a single one counts for all."""
    return list(values) * count if len(values) == 1 else list(values)


def padding_attribute(pairs: Sequence[tuple[int, int]]) -> Attribute:
    """Elements added before and behind each dimension, as StableHLO has them."""
    kind = TensorType(i64, [len(pairs), 2])
    return DenseIntOrFPElementsAttr.from_list(kind, [number for pair in pairs for number in pair])


def _convolution(
    b: Builder,
    value: SSAValue,
    weight: SSAValue,
    bias: SSAValue | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: object,
) -> SSAValue:
    spatial = len(shape(weight)) - 2
    strides, pads, dilations, more = (spread(v, spatial) for v in (stride, padding, dilation, output_padding))
    batched = len(shape(value)) == spatial + 2
    if not batched:
        value = b.reshape(value, (1, *shape(value)))
    if transposed:
        weight = _turned(b, weight, groups)
        reach = [(size - 1) * step for size, step in zip(shape(weight)[2:], dilations, strict=True)]
        pairs = [(r - pad, r - pad + extra) for r, pad, extra in zip(reach, pads, more, strict=True)]
        steps, gaps = [1] * spatial, strides
    else:
        pairs = [(pad, pad) for pad in pads]
        steps, gaps = strides, [1] * spatial
    kind = b.result.element_type
    sizes = b.result.get_shape() if batched else (1, *b.result.get_shape())
    if 0 in sizes or 0 in shape(value):
        result = b.splat(0, b.tensor(sizes, computation_type(kind)))
    else:
        result = _convolved(b, value, weight, sizes, (steps, pairs, gaps, dilations), groups)
    if bias is not None:
        wide = b.convert(bias, element(result))
        result = b.binary(stablehlo.AddOp, result, b.broadcast_in(wide, sizes, [1]))
    return b.reshape(b.convert(result, kind), b.result.get_shape())


def _turned(b: Builder, weight: SSAValue, groups: int) -> SSAValue:
    """The weight of a transposed convolution as that of a plain one: reversed, with outputs before inputs."""
    inputs, outputs, *spatial = shape(weight)
    dimensions = list(range(2, len(spatial) + 2))
    if spatial:
        weight = b.emit(stablehlo.ReverseOp, (weight,), weight.type, {"dimensions": b.integers(dimensions)})
    split = b.reshape(weight, (groups, inputs // groups, outputs, *spatial))
    swapped = b.transpose(split, (0, 2, 1, *(dimension + 1 for dimension in dimensions)))
    return b.reshape(swapped, (groups * outputs, inputs // groups, *spatial))


def _convolved(
    b: Builder,
    value: SSAValue,
    weight: SSAValue,
    sizes: Sequence[int],
    windows: tuple[Sequence[int], Sequence[tuple[int, int]], Sequence[int], Sequence[int]],
    groups: int,
) -> SSAValue:
    """A convolution of dimensions in PyTorch's order; `windows` are strides, padding, dilations of both operands."""
    strides, pairs, gaps, dilations = windows
    places = "".join(map(str, range(len(strides))))
    properties: dict[str, Attribute] = {
        "window_strides": b.integers(strides),
        "lhs_dilation": b.integers(gaps),
        "rhs_dilation": b.integers(dilations),
        "dimension_numbers": stablehlo.ConvDimensionsAttr(
            labels("bf" + places), labels("oi" + places), labels("bf" + places)
        ),
        "feature_group_count": b.integer(groups),
        "batch_group_count": b.integer(1),
    }
    if strides:
        properties["padding"] = padding_attribute(pairs)
    kind = b.tensor(sizes, computation_type(element(value)))
    return b.emit(stablehlo.ConvolutionOp, (value, weight), kind, properties)


# --- gradients -------------------------------------------------------------------------------------------------------


def _backward(
    b: Builder,
    gradient: SSAValue,
    value: SSAValue,
    weight: SSAValue,
    _bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Sequence[SSAValue]:
    """Gradients of the operand, the weight and the bias; of those that nobody asks for, what stands for nothing."""
    spatial = len(shape(weight)) - 2
    windows = Windows(*(spread(entries, spatial) for entries in (stride, padding, dilation)))
    found = [b.splat(0, kind) for kind in b.results]
    if 0 in (*shape(value), *shape(gradient)):
        return found
    if output_mask[0]:
        found[0] = _of_operand(b, gradient, value, weight, windows, transposed, groups)
    if output_mask[1]:
        # A transposed convolution is a plain one from its result to its operand.
        pair = (gradient, value) if transposed else (value, gradient)
        found[1] = _of_weight(b, *pair, weight, windows, groups)
    if output_mask[2]:
        wide = b.convert(gradient, computation_type(element(gradient)))
        others = [index for index in range(len(shape(gradient))) if index != 1]
        found[2] = b.reduce(wide, others, stablehlo.AddOp, 0)
    return [b.convert(value, kind.element_type) for value, kind in zip(found, b.results, strict=True)]


@dataclass(frozen=True)
class Windows:
    """How a plain convolution's windows lie, with an entry for each spatial dimension."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]


def _of_operand(
    b: Builder,
    gradient: SSAValue,
    value: SSAValue,
    weight: SSAValue,
    windows: Windows,
    transposed: bool,
    groups: int,
) -> SSAValue:
    ones = [1] * len(windows.stride)
    if transposed:
        pairs = [(pad, pad) for pad in windows.padding]
        forms = (windows.stride, pairs, ones, windows.dilation)
        return _convolved(b, gradient, weight, shape(value), forms, groups)
    pairs: list[tuple[int, int]] = []
    for index, (step, pad, gap) in enumerate(zip(windows.stride, windows.padding, windows.dilation, strict=True)):
        spread_out = (shape(gradient)[2 + index] - 1) * step + 1
        pairs.append(((shape(weight)[2 + index] - 1) * gap - pad, shape(value)[2 + index] - spread_out + pad))
    forms = (ones, pairs, windows.stride, windows.dilation)
    return _convolved(b, gradient, _turned(b, weight, groups), shape(value), forms, groups)


def _of_weight(
    b: Builder, value: SSAValue, gradient: SSAValue, weight: SSAValue, windows: Windows, groups: int
) -> SSAValue:
    """Products of each feature of the operand with each one of the gradient, summed over batches and positions."""
    pairs: list[tuple[int, int]] = []
    for index, (step, pad, gap) in enumerate(zip(windows.stride, windows.padding, windows.dilation, strict=True)):
        spread_out = (shape(gradient)[2 + index] - 1) * step + 1
        reach = (shape(weight)[2 + index] - 1) * gap
        pairs.append((pad, reach + spread_out - shape(value)[2 + index] - pad))
    places = "".join(map(str, range(len(pairs))))
    properties: dict[str, Attribute] = {
        "window_strides": b.integers(windows.dilation),
        "padding": padding_attribute(pairs),
        "rhs_dilation": b.integers(windows.stride),
        "dimension_numbers": stablehlo.ConvDimensionsAttr(
            labels("fb" + places), labels("io" + places), labels("fb" + places)
        ),
        "feature_group_count": b.integer(1),
        "batch_group_count": b.integer(groups),
    }
    kind = b.tensor(shape(weight), computation_type(element(value)))
    return b.emit(stablehlo.ConvolutionOp, (value, gradient), kind, properties)


CONVERSIONS: Mapping[str, Converter] = {
    "aten.convolution.default": _convolution,
    "aten.convolution_overrideable.default": _convolution,
    "aten.convolution_backward.default": _backward,
}
"""Converters of this family."""
