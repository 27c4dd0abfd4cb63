"""Operations that take or replace parts of tensors, in place of those of xdsl-jax, which do not check their numbers.

The rules are those of the specification: which dimensions of an operand a part has, and where it may lie. The classes
are plain subclasses, not definitions of their own: they inherit fields, syntax and traits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from xdsl.dialects.builtin import DYNAMIC_INDEX, I64, ArrayAttr, IntegerAttr
from xdsl.irdl import IRDLOperation
from xdsl.utils.exceptions import VerifyException
from xdsl_jax.dialects.stablehlo.data_movement_ops import DynamicSliceOp as _DynamicSliceOp
from xdsl_jax.dialects.stablehlo.data_movement_ops import GatherOp as _GatherOp
from xdsl_jax.dialects.stablehlo.data_movement_ops import ScatterOp as _ScatterOp
from xdsl_jax.dialects.stablehlo.data_movement_ops import SliceOp as _SliceOp

from vllm_ir.dialects.stablehlo.checks import (
    check_body,
    check_counts,
    check_dimension,
    check_rank,
    check_same_element,
    check_shape,
    tensor_of,
)

_Operation = TypeVar("_Operation", bound=type[IRDLOperation])


def _with_fields(operation: _Operation) -> _Operation:
    """A subclass of an operation with the accessors of its fields, which xDSL's parser looks up in the class itself."""
    accessors, definition = vars(operation.__bases__[0]), operation.get_irdl_definition()
    for name, _ in (*definition.operands, *definition.results, *definition.regions):
        setattr(operation, name, accessors[name])
    return operation


@_with_fields
class SliceOp(_SliceOp):
    """The elements of `operand` from `start_indices` to `limit_indices`, in steps of `strides`."""

    def verify_(self) -> None:
        """The slice lies in the operand, and the result has its shape."""
        super().verify_()
        shape = tensor_of("operand", self.operand).get_shape()
        given = [list(numbers.get_values()) for numbers in (self.start_indices, self.limit_indices, self.strides)]
        for name, numbers in zip(("start_indices", "limit_indices", "strides"), given, strict=True):
            check_rank(name, numbers, len(shape))
        expected: list[int] = []
        for dimension, (size, start, limit, step) in enumerate(zip(shape, *given, strict=True)):
            if not 0 <= start <= limit or step < 1 or (size != DYNAMIC_INDEX and limit > size):
                text = f"{start}:{limit}:{step}"
                raise VerifyException(
                    f"the slice {text} is not one of dimension {dimension}, which has {size} elements"
                )
            expected.append(-(-(limit - start) // step))
        check_shape("result", tensor_of("result", self.result), expected)


@_with_fields
class DynamicSliceOp(_DynamicSliceOp):
    """The elements of `operand` from `start_indices` on, which are clamped into it; `slice_sizes` of them."""

    def verify_(self) -> None:
        """The slice fits into the operand, and the result has its shape."""
        super().verify_()
        shape, sizes = tensor_of("operand", self.operand).get_shape(), list(self.slice_sizes.get_values())
        check_rank("start_indices", self.start_indices, len(shape))
        _check_sizes("slice_sizes", sizes, shape)
        check_shape("result", tensor_of("result", self.result), sizes)


@_with_fields
class GatherOp(_GatherOp):
    """Slices of `operand` at `start_indices`."""

    def verify_(self) -> None:
        """Dimensions exist and are named once, slices fit into the operand, and the result has their shape."""
        super().verify_()
        operand, result = tensor_of("operand", self.operand), tensor_of("result", self.result)
        shape, sizes, numbers = operand.get_shape(), list(self.slice_sizes.get_values()), self.dimension_numbers
        _check_sizes("slice_sizes", sizes, shape)
        offsets = _numbers("offset_dims", numbers.offset_dims, len(result.get_shape()))
        left_out = [
            *_numbers("collapsed_slice_dims", numbers.collapsed_slice_dims, len(shape)),
            *_numbers("operand_batching_dims", numbers.operand_batching_dims, len(shape)),
        ]
        _check_once("collapsed_slice_dims and operand_batching_dims", left_out)
        for dimension in left_out:
            if sizes[dimension] > 1:
                raise VerifyException(f"the slice has {sizes[dimension]} elements in dimension {dimension}, which goes")
        kept = [size for dimension, size in enumerate(sizes) if dimension not in left_out]
        check_rank("offset_dims", offsets, len(kept))
        indices = list(tensor_of("start_indices", self.start_indices).get_shape())
        batch = _batch(indices, numbers.index_vector_dim, numbers.start_index_map, "start_index_map", len(shape))
        _check_batching(numbers.operand_batching_dims, numbers.start_indices_batching_dims, len(indices))
        check_shape("result", result, _placed(offsets, kept, batch))


@_with_fields
class ScatterOp(_ScatterOp):
    """`inputs` with slices at `scatter_indices` combined with `updates` by `update_computation`."""

    def verify_(self) -> None:
        """Dimensions exist and are named once, and the updates have the shape that they give."""
        super().verify_()
        numbers = self.scatter_dimension_numbers
        check_counts(self.inputs, self.result)
        check_counts(self.inputs, self.updates)
        kinds = [tensor_of(f"input {index}", value) for index, value in enumerate(self.inputs)]
        shape = kinds[0].get_shape()
        indices = list(tensor_of("scatter_indices", self.scatter_indices).get_shape())
        left_out = [
            *_numbers("inserted_window_dims", numbers.inserted_window_dims, len(shape)),
            *_numbers("input_batching_dims", numbers.input_batching_dims, len(shape)),
        ]
        _check_once("inserted_window_dims and input_batching_dims", left_out)
        named = "scatter_dims_to_operand_dims"
        batch = _batch(indices, numbers.index_vector_dim, numbers.scatter_dims_to_operand_dims, named, len(shape))
        _check_batching(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, len(indices))
        whole = [size for dimension, size in enumerate(shape) if dimension not in left_out]
        for index, (kind, update, result) in enumerate(zip(kinds, self.updates, self.result, strict=True)):
            part, output = tensor_of(f"update {index}", update), tensor_of(f"result {index}", result)
            check_shape(f"input {index}", kind, shape)
            check_shape(f"result {index}", output, shape)
            check_same_element(f"update {index}", part, f"input {index}", kind)
            check_same_element(f"result {index}", output, f"input {index}", kind)
            windows = _numbers("update_window_dims", numbers.update_window_dims, len(part.get_shape()))
            check_rank("update_window_dims", windows, len(whole))
            lengths = [part.get_shape()[dimension] for dimension in windows]
            _check_sizes(f"the window of update {index}", lengths, whole)
            check_shape(f"update {index}", part, _placed(windows, lengths, batch))
        elements = [kind.element_type for kind in kinds]
        check_body("the update computation", self.update_computation, [*elements, *elements], elements)


def _check_sizes(name: str, sizes: Sequence[int], shape: Sequence[int]) -> None:
    """A part has a size for each dimension, not larger than the whole."""
    check_rank(name, sizes, len(shape))
    for dimension, (size, whole) in enumerate(zip(sizes, shape, strict=True)):
        if (size < 0 and size != DYNAMIC_INDEX) or (whole != DYNAMIC_INDEX and size > whole):
            raise VerifyException(f"{name} has {size} in dimension {dimension}, the operand {whole}")


def _numbers(name: str, dimensions: ArrayAttr[IntegerAttr[I64]], rank: int) -> list[int]:
    """Numbers of dimensions, in order."""
    found = [dimension.value.data for dimension in dimensions]
    for dimension in found:
        check_dimension(name, dimension, rank)
    if found != sorted(set(found)):
        raise VerifyException(f"{name} is {found}, which is not in order")
    return found


def _check_once(name: str, dimensions: Sequence[int]) -> None:
    if len(set(dimensions)) != len(dimensions):
        raise VerifyException(f"{name} name a dimension twice: {list(dimensions)}")


def _batch(
    indices: Sequence[int], vector: IntegerAttr[I64], named: ArrayAttr[IntegerAttr[I64]], name: str, rank: int
) -> list[int]:
    """Sizes of the dimensions of the indices along which slices lie; index vectors are along the one left out."""
    at = vector.value.data
    if not 0 <= at <= len(indices):
        raise VerifyException(f"index_vector_dim is {at}, the indices have {len(indices)} dimensions")
    length = indices[at] if at < len(indices) else 1
    dimensions = [dimension.value.data for dimension in named]
    for dimension in dimensions:
        check_dimension(name, dimension, rank)
    _check_once(name, dimensions)
    if length not in (len(dimensions), DYNAMIC_INDEX):
        raise VerifyException(f"{name} names {len(dimensions)} dimensions, the index vectors have {length} entries")
    return [size for dimension, size in enumerate(indices) if dimension != at]


def _check_batching(
    of_operand: ArrayAttr[IntegerAttr[I64]], of_indices: ArrayAttr[IntegerAttr[I64]], rank: int
) -> None:
    """Each batch dimension of the operand is one of the indices."""
    dimensions = [dimension.value.data for dimension in of_indices]
    for dimension in dimensions:
        check_dimension("a batching dimension of the indices", dimension, rank)
    check_rank("the batching dimensions of the indices", dimensions, len(of_operand))


def _placed(windows: Sequence[int], lengths: Sequence[int], batch: Sequence[int]) -> list[int]:
    """A shape with `lengths` in the dimensions `windows` and `batch` in the others."""
    rank, sizes = len(windows) + len(batch), dict(zip(windows, lengths, strict=True))
    others = iter(batch)
    if any(dimension >= rank for dimension in windows):
        raise VerifyException(f"dimension {max(windows)} holds a part of a slice, but there are {rank} in all")
    return [sizes[dimension] if dimension in sizes else next(others) for dimension in range(rank)]
