"""What verifiers of our StableHLO operations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.vllm_ir.types import shape_text


def tensor_of(name: str, value: SSAValue) -> TensorType[Attribute]:
    """The tensor type of a value; `VerifyException` if it has another."""
    kind: Attribute = value.type
    if not isinstance(kind, TensorType):
        raise VerifyException(f"{name} has type {kind}, not a tensor")
    return cast("TensorType[Attribute]", kind)


def check_same_element(name: str, value: TensorType[Attribute], other_name: str, other: TensorType[Attribute]) -> None:
    """Two tensors have one element type."""
    if value.element_type != other.element_type:
        raise VerifyException(f"{name} has element type {value.element_type}, {other_name} {other.element_type}")


def fits(size: int, expected: int) -> bool:
    """Whether a size may be the expected one; dynamic ones may be anything."""
    return size == expected or DYNAMIC_INDEX in (size, expected)


def check_shape(name: str, value: TensorType[Attribute], expected: Sequence[int]) -> None:
    """A tensor has the expected shape, as far as it is static."""
    shape = value.get_shape()
    if len(shape) != len(expected) or not all(map(fits, shape, expected)):
        raise VerifyException(f"{name} has shape {shape_text(shape)}, expected {shape_text(expected)}")


def check_counts(inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> None:
    """There are operands, and a result for each."""
    if not inputs or len(inputs) != len(outputs):
        raise VerifyException(f"{len(inputs)} inputs and {len(outputs)} outputs")


def check_outputs(
    inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], shape: Callable[[list[int]], Sequence[int]]
) -> None:
    """There is a result for each operand, of its element type, in the shape that `shape` makes of the operand's."""
    check_counts(inputs, outputs)
    for index, (value, output) in enumerate(zip(inputs, outputs, strict=True)):
        kind, result = tensor_of(f"input {index}", value), tensor_of(f"output {index}", output)
        check_shape(f"output {index}", result, shape(list(kind.get_shape())))
        check_same_element(f"output {index}", result, f"input {index}", kind)


def check_rank(name: str, entries: Sequence[object], rank: int) -> None:
    """A list has an entry for each dimension."""
    if len(entries) != rank:
        raise VerifyException(f"{name} has {len(entries)} entries for {rank} dimensions")


def check_dimension(name: str, dimension: int, rank: int) -> None:
    """A dimension exists."""
    if not 0 <= dimension < rank:
        raise VerifyException(f"{name} is {dimension}, the operand has {rank} dimensions")


def check_positive(name: str, entries: Sequence[int]) -> None:
    """Sizes and steps are at least 1."""
    for entry in entries:
        if entry < 1:
            raise VerifyException(f"{name} has the entry {entry}, which is not positive")


def pairs_of(name: str, given: DenseIntOrFPElementsAttr, rank: int) -> list[tuple[int, int]]:
    """The rows of a matrix of two columns, one row for each dimension."""
    shape = given.get_shape()
    if len(shape) != 2 or shape[1] != 2:
        raise VerifyException(f"{name} has shape {shape_text(shape)}, expected rows of two")
    check_rank(name, range(shape[0]), rank)
    numbers = cast("Sequence[int]", given.get_values())
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def check_body(name: str, body: Region, arguments: Sequence[Attribute], results: Sequence[Attribute]) -> None:
    """A region takes scalars of `arguments` and its terminator gives scalars of `results` (element types)."""
    taken = [TensorType(element, []) for element in arguments]
    given = [TensorType(element, []) for element in results]
    block = body.block
    if list(block.arg_types) != taken:
        raise VerifyException(f"{name} takes ({_types(block.arg_types)}), expected ({_types(taken)})")
    last = block.last_op
    if last is None or last.name != "stablehlo.return":
        raise VerifyException(f"{name} ends in {last.name if last else 'nothing'}, not stablehlo.return")
    actual = [operand.type for operand in last.operands]
    if actual != given:
        raise VerifyException(f"{name} returns ({_types(actual)}), expected ({_types(given)})")


def _types(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types))
