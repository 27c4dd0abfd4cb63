"""Building StableHLO: typed operations, with constants, broadcasts and conversions made where they are needed.

Values are SSA values of plain tensor types (no encodings), integers of the program among them as `tensor<i64>`. Types
and attributes are interned for the length of a conversion, since making one costs more than an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    BytesAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntAttr,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    NoneType,
    TensorType,
    UnknownLoc,
    f8E4M3FN,
    f32,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.dtypes import (
    Number,
    Operand,
    bits_of,
    element,
    is_convertible,
    is_float,
    is_narrow,
    packed,
    shape,
)
from vllm_ir.dialects import stablehlo
from vllm_ir.dialects.stablehlo import ComparisonDirection, ComparisonDirectionAttr
from vllm_ir.frontends.fx.types import is_tensor

Tensor: TypeAlias = TensorType[Attribute]
Converter: TypeAlias = Callable[..., SSAValue | Sequence[SSAValue]]
"""Converts a call: takes the builder and the call's arguments as the schema names them, and gives its results.

Tensors arrive as values, other arguments as Python values. The types that the results must have are in
`Builder.results`. Raises `Rejected` for arguments that have no StableHLO form.
"""

_NO_PROPERTIES: Mapping[str, Attribute] = {}
_DIRECTIONS = {direction.value: ComparisonDirectionAttr(direction) for direction in ComparisonDirection}


class Rejected(Exception):  # it is an answer, not a failure
    """An operator, or the arguments that it is called with, cannot be converted; says why and what to do."""


class Builder:
    """Appends operations to a block; all get the current `location`."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.location: LocationAttr = UnknownLoc()
        self.results: Sequence[Tensor] = ()
        """Types of the results of the call that is being converted."""
        self.source: Operation | None = None
        """That call; for what types of values do not tell, as the layouts that eager mode gives its operands."""
        self.program: Operation | None = None
        """The function that is being converted; the call may be in the definition of one of its operations."""
        # By identity, since hashing a type costs more than an entry too many; what is stored keeps its key alive.
        self._types: dict[tuple[tuple[int, ...], int], Tensor] = {}
        self._plain: dict[int, tuple[Attribute, Tensor]] = {}
        self._integers: dict[int, IntegerAttr] = {}
        self._arrays: dict[tuple[int, ...], DenseArrayBase] = {}
        self._constants: dict[tuple[int, bytes], SSAValue] = {}

    # --- types and attributes --------------------------------------------------------------------------------------

    @property
    def result(self) -> Tensor:
        """Type of the only result of the call that is being converted."""
        return self.results[0]

    def tensor(self, sizes: Sequence[int], kind: Attribute) -> Tensor:
        """A tensor type, interned."""
        key = (tuple(sizes), id(kind))
        if (found := self._types.get(key)) is None:
            found = self._types[key] = TensorType(kind, ArrayAttr([IntAttr(size) for size in sizes]))
        return found

    def plain(self, kind: Attribute) -> Tensor:
        """The type of values for a type of the IR: without encoding; a scalar tensor for a number."""
        if (found := self._plain.get(id(kind))) is None:
            number = i1 if isinstance(kind, NoneType) else kind  # a result that is left out is a boolean nobody reads
            plain = self.tensor(kind.get_shape(), kind.element_type) if is_tensor(kind) else self.tensor((), number)
            if not is_convertible(plain.element_type):
                raise Rejected(f"StableHLO has no elements of type {plain.element_type}")
            found = self._plain[id(kind)] = (kind, plain)
        return found[1]

    def integer(self, value: int) -> IntegerAttr:
        """An `i64` attribute, interned."""
        if (found := self._integers.get(value)) is None:
            found = self._integers[value] = IntegerAttr(value, i64)
        return found

    def integers(self, values: Sequence[int]) -> DenseArrayBase:
        """An `array<i64: ..>`, interned."""
        key = tuple(values)
        if (found := self._arrays.get(key)) is None:
            found = self._arrays[key] = DenseArrayBase.from_list(i64, key)
        return found

    # --- operations ------------------------------------------------------------------------------------------------

    def emit(
        self,
        operation: type[Operation],
        operands: Sequence[SSAValue],
        kind: Attribute,
        properties: Mapping[str, Attribute] = _NO_PROPERTIES,
        regions: Sequence[Region] = (),
    ) -> SSAValue:
        """The only result of a new operation."""
        return self.emit_all(operation, operands, (kind,), properties, regions)[0]

    def emit_all(
        self,
        operation: type[Operation],
        operands: Sequence[SSAValue],
        kinds: Sequence[Attribute],
        properties: Mapping[str, Attribute] = _NO_PROPERTIES,
        regions: Sequence[Region] = (),
    ) -> Sequence[SSAValue]:
        """The results of a new operation."""
        op = operation.create(
            operands=operands, result_types=kinds, properties=properties, location=self.location, regions=regions
        )
        self.block.add_op(op)
        return op.results

    def region(self, kinds: Sequence[Tensor], body: Callable[..., Sequence[SSAValue]]) -> Region:
        """A region of one block with arguments of these types, which returns what `body` makes of them.

        It has constants of its own, since some operations do not let their regions see values outside.
        """
        block = Block(arg_types=kinds)
        with self._inside(block):
            given = body(*block.args)
            end = stablehlo.ReturnOp.create(operands=given, location=self.location)
            block.add_op(end)
        return Region(block)

    def reducer(self, operation: type[Operation], kind: Attribute) -> Region:
        """A region that combines two scalars of an element type by one operation."""
        scalar = self.tensor((), kind)

        def combined(left: SSAValue, right: SSAValue) -> Sequence[SSAValue]:
            return [self.emit(operation, (left, right), scalar)]

        return self.region((scalar, scalar), combined)

    @contextmanager
    def _inside(self, block: Block) -> Generator[None]:
        outer, constants = self.block, self._constants
        self.block, self._constants = block, {}
        try:
            yield
        finally:
            self.block, self._constants = outer, constants

    # --- values ----------------------------------------------------------------------------------------------------

    def splat(self, value: Number, kind: Tensor) -> SSAValue:
        """A constant with the same number everywhere; the same value for the same constant of a block."""
        return self.constant(packed(value, kind.element_type), kind)

    def scalar(self, value: Number, kind: Attribute) -> SSAValue:
        """A constant without dimensions."""
        return self.constant(packed(value, kind), self.tensor((), kind))

    def constant(self, data: bytes, kind: Tensor) -> SSAValue:
        """A constant from the bytes of its elements, row-major and little-endian, or those of one for all."""
        key = (id(kind), data)
        if (found := self._constants.get(key)) is None:
            if 0 in kind.get_shape():
                data = b""
            value = DenseIntOrFPElementsAttr(cast("TensorType[AnyFloat | IntegerType]", kind), BytesAttr(data))
            found = self.emit(stablehlo.ConstantOp, (), kind, {"value": value})
            self._constants[key] = found
        return found

    def convert(self, value: Operand, kind: Attribute) -> SSAValue:
        """A value with elements of another type, rounded as by `Tensor.to`."""
        if not isinstance(value, SSAValue):
            return self.scalar(value, kind)
        if element(value) == kind:
            return value
        if element(value) == i1 and is_float(kind):
            # XLA makes a product with a converted boolean a selection, in which 0 * nan would be 0.
            like = self.tensor(shape(value), kind)
            return self.select(value, self.splat(1, like), self.splat(0, like))
        if is_narrow(kind) and bits_of(element(value)) >= 32:
            value = self.convert(value, f32)  # PyTorch rounds twice
        if kind == f8E4M3FN:
            value = self._within(value, 448.0)
        return self.emit(stablehlo.ConvertOp, (value,), self.tensor(shape(value), kind))

    def _within(self, value: SSAValue, limit: float) -> SSAValue:
        """A value bounded by what its target can hold: PyTorch saturates where XLA gives what is not a number."""
        value = self.convert(value, f32)
        value = self.binary(stablehlo.MinimumOp, value, limit)
        return self.binary(stablehlo.MaximumOp, value, -limit)

    def broadcast(self, value: SSAValue, sizes: Sequence[int]) -> SSAValue:
        """A value repeated along new leading dimensions and those of size 1."""
        own = shape(value)
        if own == tuple(sizes):
            return value
        return self.broadcast_in(value, sizes, range(len(sizes) - len(own), len(sizes)))

    def broadcast_in(self, value: SSAValue, sizes: Sequence[int], dimensions: Sequence[int]) -> SSAValue:
        """A value whose dimensions are `dimensions` of the result, repeated along the others."""
        properties = {"broadcast_dimensions": self.integers(dimensions)}
        return self.emit(stablehlo.BroadcastInDimOp, (value,), self.tensor(sizes, element(value)), properties)

    def like(self, value: Operand, kind: Tensor) -> SSAValue:
        """A value or number converted and broadcast to a type."""
        if not isinstance(value, SSAValue):
            return self.splat(value, kind)
        if value.type is kind:
            return value
        return self.broadcast(self.convert(value, kind.element_type), kind.get_shape())

    def reshape(self, value: SSAValue, sizes: Sequence[int]) -> SSAValue:
        """A value with the same elements in another shape."""
        if shape(value) == tuple(sizes):
            return value
        return self.emit(stablehlo.ReshapeOp, (value,), self.tensor(sizes, element(value)))

    def transpose(self, value: SSAValue, permutation: Sequence[int]) -> SSAValue:
        """A value whose dimension `i` is dimension `permutation[i]` of the given one."""
        if list(permutation) == list(range(len(permutation))):
            return value
        sizes = shape(value)
        kind = self.tensor([sizes[dimension] for dimension in permutation], element(value))
        return self.emit(stablehlo.TransposeOp, (value,), kind, {"permutation": self.integers(permutation)})

    def slice(
        self, value: SSAValue, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int] | None = None
    ) -> SSAValue:
        """Elements from `starts` to before `limits` in each dimension."""
        steps = [1] * len(starts) if steps is None else steps
        sizes = [max(0, -(-(limit - start) // step)) for start, limit, step in zip(starts, limits, steps, strict=True)]
        if tuple(sizes) == shape(value):
            return value
        properties = {
            "start_indices": self.integers(starts),
            "limit_indices": self.integers(limits),
            "strides": self.integers(steps),
        }
        return self.emit(stablehlo.SliceOp, (value,), self.tensor(sizes, element(value)), properties)

    def concatenate(self, values: Sequence[SSAValue], dimension: int) -> SSAValue:
        """Values of one element type, one behind the other."""
        if len(values) == 1:
            return values[0]
        sizes = list(shape(values[0]))
        sizes[dimension] = sum(shape(value)[dimension] for value in values)
        kind = self.tensor(sizes, element(values[0]))
        return self.emit(stablehlo.ConcatenateOp, values, kind, {"dimension": self.integer(dimension)})

    def iota(self, kind: Tensor, dimension: int = 0) -> SSAValue:
        """Each element's index along a dimension."""
        return self.emit(stablehlo.IotaOp, (), kind, {"iota_dimension": self.integer(dimension)})

    def unary(self, operation: type[Operation], value: SSAValue) -> SSAValue:
        """An operation whose result is like its operand."""
        return self.emit(operation, (value,), value.type)

    def binary(self, operation: type[Operation], left: SSAValue, right: Operand) -> SSAValue:
        """An operation of two values of one type; a number on the right is made one."""
        if not isinstance(right, SSAValue):
            right = self.splat(right, self.plain(left.type))
        return self.emit(operation, (left, right), left.type)

    def compare(self, direction: str, left: SSAValue, right: Operand) -> SSAValue:
        """`left <direction> right`, values of one type or a number on the right; direction is `LT`, `EQ`, ..."""
        if not isinstance(right, SSAValue):
            right = self.splat(right, self.plain(left.type))
        properties = {"comparison_direction": _DIRECTIONS[direction]}
        return self.emit(stablehlo.CompareOp, (left, right), self.tensor(shape(left), i1), properties)

    def select(self, predicate: SSAValue, yes: SSAValue, no: Operand) -> SSAValue:
        """`yes` where the predicate holds, `no` elsewhere; a number for `no` is made a value."""
        if not isinstance(no, SSAValue):
            no = self.splat(no, self.plain(yes.type))
        return self.emit(stablehlo.SelectOp, (predicate, yes, no), yes.type)

    def reduce(
        self, value: SSAValue, dimensions: Sequence[int], operation: type[Operation], initial: Number
    ) -> SSAValue:
        """Elements along `dimensions`, which go away, combined by an operation that `initial` is neutral for."""
        if not dimensions:
            return value
        kind = element(value)
        sizes = [size for index, size in enumerate(shape(value)) if index not in dimensions]
        start = self.scalar(initial, kind)
        properties = {"dimensions": self.integers(sorted(dimensions))}
        regions = [self.reducer(operation, kind)]
        return self.emit(stablehlo.ReduceOp, (value, start), self.tensor(sizes, kind), properties, regions)


def dimension_of(index: int, rank: int) -> int:
    """A dimension counted from the front; a tensor without dimensions counts as having one."""
    return index + max(rank, 1) if index < 0 else index


def dimensions_of(indices: int | Sequence[int] | None, rank: int) -> list[int]:
    """Dimensions counted from the front; none given means all."""
    if indices is None:
        return list(range(rank))
    given = [indices] if isinstance(indices, int) else indices
    return list(range(rank)) if not given else [dimension_of(index, rank) for index in given if rank]
