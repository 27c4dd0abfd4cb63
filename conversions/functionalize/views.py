"""Views of values: reading through a view operator, and the inverse that puts a new piece back.

A *codec* connects the value of a base with the value of a window onto it. `read` gives the piece, `write` the base with
the piece replaced. Bijective codecs do not need the old base for that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._ops import OpOverload
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, contiguous_strides, device_of, element_type_of, shape_of
from vllm_ir.frontends.fx.build import CallBuilder, integer_argument, python_argument
from vllm_ir.frontends.fx.schemas import resolve

aten = torch.ops.aten


class Codec(ABC):
    """How a window's value and its base's value determine each other."""

    needs_base = True

    @abstractmethod
    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        """The piece of `base`, of type `window`."""

    @abstractmethod
    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        """`base` with the piece replaced by `value`; its type is `whole`. `base` is None if it is not needed."""


def reshape(b: CallBuilder, value: SSAValue, shape: Sequence[int | SSAValue], result: Attribute) -> SSAValue:
    """`value` in another shape."""
    if shape_of(value.type) == shape_of(result) and DYNAMIC_INDEX not in shape_of(result):
        return value
    return b.value(aten.reshape.default, [value, list(shape)], result)


@dataclass
class ViewCodec(Codec):
    """A view operator with its arguments; result `index` of it."""

    view: ViewOp
    index: int
    whole: BufferType

    def arguments(self) -> list[object]:
        """Arguments behind the base, in schema order."""
        trees = [*self.view.args.data[1:], *(self.view.kwargs.data.values() if self.view.kwargs else ())]
        return [python_argument(tree, self.view.operands) for tree in trees]

    @property
    def overload(self) -> OpOverload:
        """The view operator."""
        target = resolve(self.view.target)
        if not isinstance(target, OpOverload):
            raise TypeError(f"@{self.view.target} is not an operator")
        return target

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        if len(self.view.results) > 1 or _is_list(self.overload):
            return _read_piece(b, self, base, window)
        rule = _RULES.get(self.overload.overloadpacket)
        if rule is not None and rule.read is not None:
            return rule.read(b, self, base, window)
        return b.value(self.overload, [base, *self.arguments()], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        if len(self.view.results) > 1 or _is_list(self.overload):
            return _write_piece(b, self, _needed(base), value, whole)
        rule = _RULES.get(self.overload.overloadpacket)
        if rule is not None:
            return rule.write(b, self, base, value, whole)
        return _write_by_index(b, self, _needed(base), value, whole)

    @property
    def needs_base(self) -> bool:  # type: ignore[override]  # depends on the operator here
        """Whether the window may leave out elements of the base."""
        if len(self.view.results) > 1 or _is_list(self.overload):
            return True
        rule = _RULES.get(self.overload.overloadpacket)
        return rule is None or rule.needs_base


@dataclass(frozen=True)
class Rule:
    """Reading and writing through one view operator; `read` None means the operator itself."""

    write: Callable[[CallBuilder, ViewCodec, SSAValue | None, SSAValue, Attribute], SSAValue]
    read: Callable[[CallBuilder, ViewCodec, SSAValue, Attribute], SSAValue] | None = None
    needs_base: bool = False


def _is_list(overload: OpOverload) -> bool:
    return str(overload._schema.returns[0].type) == "List[Tensor]"


def _needed(base: SSAValue | None) -> SSAValue:
    if base is None:
        raise ValueError("the old base is needed")
    return base


# Shapes


def _shape_of_result(b: CallBuilder, codec: ViewCodec) -> list[int | SSAValue]:
    """Sizes that a view-like operator was asked for, or the static ones of its result."""
    shape = shape_of(codec.view.results[codec.index].type)
    if DYNAMIC_INDEX not in shape:
        return list(shape)
    asked = codec.arguments()[0] if codec.arguments() else None
    if isinstance(asked, list) and len(asked) == len(shape):
        return [integer_argument(size) for size in asked]
    raise ValueError(f"the sizes of {codec.view.target} are not known")


def _read_reshape(b: CallBuilder, codec: ViewCodec, base: SSAValue, window: Attribute) -> SSAValue:
    return reshape(b, base, _shape_of_result(b, codec), window)


def _whole_sizes(b: CallBuilder, codec: ViewCodec, base: SSAValue | None) -> list[int | SSAValue]:
    shape = shape_of(codec.whole)
    if DYNAMIC_INDEX not in shape:
        return list(shape)
    return b.sizes(_needed(base))


def _write_reshape(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    return reshape(b, value, _whole_sizes(b, codec, base), whole)


def _write_same(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    return value


def _read_same(b: CallBuilder, codec: ViewCodec, base: SSAValue, window: Attribute) -> SSAValue:
    return base


# Permutations


def _write_permute(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    order = codec.arguments()[0]
    if not isinstance(order, list):
        raise ValueError("permute without an order")
    rank = len(order)
    inverse = [0] * rank
    for position, dimension in enumerate(order):
        number = integer_argument(dimension)
        if not isinstance(number, int):
            raise ValueError("permute with a dynamic order")
        inverse[number % rank] = position
    return b.value(aten.permute.default, [value, inverse], whole)


def _write_inverse_is_itself(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    return b.value(codec.overload, [value, *codec.arguments()], whole)


# Pieces


def _scatter(overload: OpOverload) -> Rule:
    def write(
        b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
    ) -> SSAValue:
        return b.value(overload, [_needed(base), value, *codec.arguments()], whole)

    return Rule(write, None, needs_base=True)


def _piece_bounds(b: CallBuilder, codec: ViewCodec, base: SSAValue) -> tuple[int, int | SSAValue, int | SSAValue, bool]:
    """Dimension, start and size of one result of a splitting operator, and whether it drops the dimension."""
    names = [argument.name for argument in codec.overload._schema.arguments]
    values = dict(zip(names[1:], codec.arguments(), strict=False))
    dimension = integer_argument(values.get("dim", IntegerAttr(0, i64)))
    if not isinstance(dimension, int):
        raise ValueError("the dimension of a split is dynamic")
    rank = len(shape_of(codec.whole))
    dimension %= max(rank, 1)
    pieces = [shape_of(result.type) for result in codec.view.results]
    if len(pieces[codec.index]) < rank:
        return dimension, codec.index, 1, True
    start: int | SSAValue = 0
    for index in range(codec.index):
        start = b.sum(start, _piece_size(b, codec, values, index, dimension))
    return dimension, start, _piece_size(b, codec, values, codec.index, dimension), False


def _piece_size(
    b: CallBuilder, codec: ViewCodec, values: dict[str, object], index: int, dimension: int
) -> int | SSAValue:
    size = shape_of(codec.view.results[index].type)[dimension]
    if size != DYNAMIC_INDEX:
        return size
    for name in ("split_sizes", "split_size"):
        asked = values.get(name)
        if isinstance(asked, list):
            return integer_argument(asked[index])
        # All pieces but the last have the size asked for; of the last only the end matters, which slicing clamps.
        if asked is not None:
            return integer_argument(asked)
    raise ValueError(f"the sizes of the pieces of {codec.view.target} are not known")


def _read_piece(b: CallBuilder, codec: ViewCodec, base: SSAValue, window: Attribute) -> SSAValue:
    dimension, start, size, drops = _piece_bounds(b, codec, base)
    if drops:
        return b.value(aten.select.int, [base, dimension, start], window)
    return b.value(aten.slice.Tensor, [base, dimension, start, b.sum(start, size), 1], window)


def _write_piece(b: CallBuilder, codec: ViewCodec, base: SSAValue, value: SSAValue, whole: Attribute) -> SSAValue:
    dimension, start, size, drops = _piece_bounds(b, codec, base)
    if drops:
        return b.value(aten.select_scatter.default, [base, value, dimension, start], whole)
    return b.value(aten.slice_scatter.default, [base, value, dimension, start, b.sum(start, size), 1], whole)


# Element types


def contiguous(b: CallBuilder, value: SSAValue) -> SSAValue:
    """`value` in a dense row-major tensor, for operators that look at memory."""
    kind = value.type
    if not isinstance(kind, TensorType):
        raise ValueError(f"{kind} is not a tensor")
    plain = TensorType(kind.element_type, kind.shape, kind.encoding)
    return b.value(aten.clone.default, [value], plain, memory_format=torch.contiguous_format)


def _read_bits(b: CallBuilder, codec: ViewCodec, base: SSAValue, window: Attribute) -> SSAValue:
    if element_type_of(base.type) == element_type_of(window):
        return base
    dense = base if shape_of(base.type) == shape_of(window) else contiguous(b, base)
    return b.value(aten.view.dtype, [dense, element_type_of(window)], window)


def _write_bits(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    if element_type_of(value.type) == element_type_of(whole):
        return value
    dense = value if shape_of(value.type) == shape_of(whole) else contiguous(b, value)
    return b.value(aten.view.dtype, [dense, element_type_of(whole)], whole)


def _read_view(b: CallBuilder, codec: ViewCodec, base: SSAValue, window: Attribute) -> SSAValue:
    by_dtype = codec.overload is aten.view.dtype
    return _read_bits(b, codec, base, window) if by_dtype else _read_reshape(b, codec, base, window)


def _write_view(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    write = _write_bits if codec.overload is aten.view.dtype else _write_reshape
    return write(b, codec, base, value, whole)


def _write_view_as_real(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    return b.value(aten.view_as_complex.default, [contiguous(b, value)], whole)


def _read_view_as_complex(b: CallBuilder, codec: ViewCodec, base: SSAValue, window: Attribute) -> SSAValue:
    return b.value(aten.view_as_complex.default, [contiguous(b, base)], window)


def _write_view_as_complex(
    b: CallBuilder, codec: ViewCodec, base: SSAValue | None, value: SSAValue, whole: Attribute
) -> SSAValue:
    return b.value(aten.view_as_real.default, [value], whole)


# Anything else: by the positions of the elements


def element_positions(b: CallBuilder, codec: ViewCodec, base: SSAValue) -> SSAValue:
    """For each element of the window, its row-major position in the base."""
    sizes = b.sizes(base)
    shape = shape_of(codec.whole)
    window = shape_of(codec.view.results[codec.index].type)
    flat = b.value(
        torch.ops.prims.iota.default,
        [b.product(sizes)],
        TensorType(i64, [_numel(shape)]),
        start=0,
        step=1,
        dtype=i64,
        device=torch.device(device_of(base.type)),
        requires_grad=False,
    )
    grid = b.value(aten.reshape.default, [flat, list(sizes)], TensorType(i64, shape))
    return b.value(codec.overload, [grid, *codec.arguments()], TensorType(i64, window))


def _numel(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        if size == DYNAMIC_INDEX:
            return DYNAMIC_INDEX
        total *= size
    return total


def _write_by_index(
    b: CallBuilder, codec: ViewCodec, base: SSAValue, value: SSAValue, whole: Attribute
) -> SSAValue:
    positions = element_positions(b, codec, base)
    flat_type = TensorType(element_type_of(whole), [_numel(shape_of(whole))])
    flat = b.value(aten.reshape.default, [base, [-1]], flat_type)
    new = b.value(aten.index_put.default, [flat, [positions], value, False], flat_type)
    return b.value(aten.reshape.default, [new, b.sizes(base)], whole)


_RULES: dict[object, Rule] = {
    aten.view: Rule(_write_view, _read_view),
    aten._unsafe_view: Rule(_write_reshape, _read_reshape),
    aten._reshape_alias: Rule(_write_reshape, _read_reshape),
    aten.unsqueeze: Rule(_write_reshape),
    aten.squeeze: Rule(_write_reshape),
    aten.expand: Rule(_write_reshape),
    aten.alias: Rule(_write_same, _read_same),
    aten.detach: Rule(_write_same, _read_same),
    aten.lift_fresh: Rule(_write_same, _read_same),
    aten.permute: Rule(_write_permute),
    aten.transpose: Rule(_write_inverse_is_itself),
    aten.t: Rule(_write_inverse_is_itself),
    aten._conj: Rule(_write_inverse_is_itself),
    aten._neg_view: Rule(_write_inverse_is_itself),
    aten.view_as_real: Rule(_write_view_as_real),
    aten.view_as_complex: Rule(_write_view_as_complex, _read_view_as_complex),
    aten.select: _scatter(aten.select_scatter.default),
    aten.slice: _scatter(aten.slice_scatter.default),
    aten.diagonal: _scatter(aten.diagonal_scatter.default),
}
"""The inverses of PyTorch's view operators; operators that are not here go by the positions of their elements."""


# Windows by strides


class FlattenCodec(Codec):
    """The dense memory of the base as one dimension, in memory order."""

    needs_base = False

    def __init__(self, base: BufferType, order: Sequence[int]) -> None:
        """`order` lists the dimensions of the base from the largest stride to the smallest."""
        self.base = base
        self.order = list(order)
        self.identity = self.order == sorted(self.order)

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        if not self.identity:
            shape = [shape_of(self.base)[dimension] for dimension in self.order]
            permuted = TensorType(element_type_of(window), shape)
            base = b.value(aten.permute.default, [base, self.order], permuted)
        return reshape(b, base, [-1], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        shape = [shape_of(self.base)[dimension] for dimension in self.order]
        if self.identity:
            return reshape(b, value, shape, whole)
        ordered = reshape(b, value, shape, TensorType(element_type_of(whole), shape))
        inverse = [self.order.index(dimension) for dimension in range(len(self.order))]
        return b.value(aten.permute.default, [ordered, inverse], whole)


class BitsCodec(Codec):
    """One-dimensional memory as elements of another type."""

    needs_base = False

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        return b.value(aten.view.dtype, [contiguous(b, base), element_type_of(window)], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        return b.value(aten.view.dtype, [contiguous(b, value), element_type_of(whole)], whole)


class StridedCodec(Codec):
    """A strided window onto one-dimensional memory; `offset` counts from its first element."""

    def __init__(
        self, sizes: Sequence[int | SSAValue], strides: Sequence[int | SSAValue], offset: int | SSAValue
    ) -> None:
        self.sizes, self.strides, self.offset = list(sizes), list(strides), offset

    def _block(self) -> tuple[int, int] | None:
        """Start and end of a row-major window without gaps."""
        sizes = [size for size in self.sizes if isinstance(size, int)]
        if len(sizes) != len(self.sizes) or not isinstance(self.offset, int):
            return None
        if any(
            size != 1 and stride != step
            for size, stride, step in zip(sizes, self.strides, contiguous_strides(sizes), strict=True)
        ):
            return None
        return self.offset, self.offset + _numel(sizes)

    def _positions(self, b: CallBuilder, device: str) -> SSAValue:
        total: SSAValue | None = None
        rank = len(self.sizes)
        for dimension, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            length = size if isinstance(size, int) else DYNAMIC_INDEX
            steps = b.value(
                torch.ops.prims.iota.default,
                [size],
                TensorType(i64, [length]),
                start=self.offset if dimension == 0 and isinstance(self.offset, int) and isinstance(stride, int) else 0,
                step=stride if isinstance(stride, int) and stride != 0 else 1,
                dtype=i64,
                device=torch.device(device),
                requires_grad=False,
            )
            if not isinstance(stride, int) or stride == 0:
                steps = b.value(aten.mul.Scalar, [steps, stride], TensorType(i64, [length]))
            shape = [length] + [1] * (rank - dimension - 1)
            if rank - dimension - 1:
                steps = b.value(aten.reshape.default, [steps, [size] + [1] * (rank - dimension - 1)], TensorType(i64, shape))
            if total is None:
                total = steps
            else:
                known = [entry if isinstance(entry, int) else DYNAMIC_INDEX for entry in self.sizes]
                partial = [*known[: dimension + 1], *([1] * (rank - dimension - 1))]
                total = b.value(aten.add.Tensor, [total, steps], TensorType(i64, partial))
        offset_done = bool(self.sizes) and isinstance(self.offset, int) and isinstance(self.strides[0], int)
        if total is None:
            total = b.value(
                aten.full.default, [[], self.offset], TensorType(i64, []), dtype=i64, device=torch.device(device)
            )
        elif not offset_done or self.strides[0] == 0:
            total = b.value(aten.add.Scalar, [total, self.offset], total.type)
        return total

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        if (block := self._block()) is not None:
            length = TensorType(element_type_of(window), [block[1] - block[0]])
            piece = base
            if block != (0, shape_of(base.type)[0]):
                piece = b.value(aten.slice.Tensor, [base, 0, *block, 1], length)
            return reshape(b, piece, self.sizes, window)
        return b.value(aten.index.Tensor, [base, [self._positions(b, device_of(base.type))]], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        old = _needed(base)
        if (block := self._block()) is not None:
            length = block[1] - block[0]
            flat = reshape(b, value, [length], TensorType(element_type_of(whole), [length]))
            if block == (0, shape_of(whole)[0]):
                return flat
            return b.value(aten.slice_scatter.default, [old, flat, 0, *block, 1], whole)
        positions = self._positions(b, device_of(whole))
        return b.value(aten.index_put.default, [old, [positions], value, False], whole)


