"""Views of values: reading through a view operator, and the inverse that puts a new piece back.

A *codec* connects the value of a base with the value of a window onto it. `read` gives the piece, `write` the base with
the piece replaced. Bijective codecs do not need the old base for that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch._ops import OpOverloadPacket
from xdsl.dialects.builtin import DYNAMIC_INDEX, NoneAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, LayoutAttr, byte_size, device_of, element_type_of, shape_of
from vllm_ir.frontends.fx.build import CallBuilder, integer_argument, python_argument
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.fx.values import is_sequence

aten = torch.ops.aten
prims = torch.ops.prims


class Codec(ABC):
    """How a window's value and its base's value determine each other."""

    @property
    def needs_base(self) -> bool:
        """Whether the window leaves out elements of the base, whose old values a new base then holds."""
        return True

    @abstractmethod
    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        """The piece of `base`, of type `window`."""

    @abstractmethod
    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        """`base` with the piece replaced by `value`; its type is `whole`. `base` is None if it is not needed."""


def needed(base: SSAValue | None) -> SSAValue:
    """The old base, which must be there."""
    if base is None:
        raise ValueError("the old base is needed")
    return base


def reshape(b: CallBuilder, value: SSAValue, shape: Sequence[int | SSAValue], result: Attribute) -> SSAValue:
    """`value` in another shape."""
    if shape_of(value.type) == shape_of(result) and DYNAMIC_INDEX not in shape_of(result):
        return value
    return b.value(aten.reshape.default, [value, list(shape)], result)


def contiguous(b: CallBuilder, value: SSAValue) -> SSAValue:
    """`value` in a dense row-major tensor, for operators that look at memory."""
    kind = value.type
    if not is_tensor(kind):
        raise ValueError(f"{kind} is not a tensor")
    return b.value(aten.clone.default, [value], row_major(kind), memory_format=torch.contiguous_format)


def row_major(kind: TensorType[Attribute]) -> TensorType[Attribute]:
    """The type of a tensor like `kind` in row-major memory."""
    layout = kind.encoding
    if not isinstance(layout, LayoutAttr):
        return kind
    return BufferType(kind.shape, kind.element_type, layout.sizes, NoneAttr(), NoneAttr(), layout.device).tensor


def count(shape: Sequence[int]) -> int:
    """Number of elements; dynamic if a size is."""
    total = 1
    for size in shape:
        if size == DYNAMIC_INDEX:
            return DYNAMIC_INDEX
        total *= size
    return total


def iota(b: CallBuilder, length: int | SSAValue, device: str, start: int = 0, step: int = 1) -> SSAValue:
    """`length` integers from `start` on."""
    result = TensorType(i64, [length if isinstance(length, int) else DYNAMIC_INDEX])
    return b.value(
        prims.iota.default,
        [length],
        result,
        start=start,
        step=step,
        dtype=i64,
        device=torch.device(device),
        requires_grad=False,
    )


@dataclass
class ViewCodec(Codec):
    """A view operator with its arguments."""

    view: ViewOp
    result: BufferType
    whole: BufferType

    def arguments(self) -> list[object]:
        """Arguments behind the base, in schema order."""
        trees = [*self.view.args.data[1:], *(self.view.kwargs.data.values() if self.view.kwargs else ())]
        return [python_argument(tree, self.view.operands) for tree in trees]

    @property
    def overload(self) -> Overload:
        """The view operator."""
        target = resolve(self.view.target)
        if not is_overload(target):
            raise TypeError(f"@{self.view.target} is not an operator")
        return target

    def _rule(self) -> Rule:
        return _RULES.get(self.overload.overloadpacket, _BY_INDEX)

    @property
    def needs_base(self) -> bool:
        return self._rule().needs_base

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        read = self._rule().read
        if read is not None:
            return read(Piece(b, self, base, base, window))
        return b.value(self.overload, [base, *self.arguments()], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        return self._rule().write(Piece(b, self, base, value, whole))


@dataclass(frozen=True)
class Piece:
    """What a rule works on: it makes a value of type `type` of `value`, and of the old base where it is needed."""

    b: CallBuilder
    codec: ViewCodec
    base: SSAValue | None
    value: SSAValue
    type: Attribute

    def call(self, overload: Overload, *arguments: object) -> SSAValue:
        """The result of a call, of the type that is asked for."""
        return self.b.value(overload, arguments, self.type)


@dataclass(frozen=True)
class Rule:
    """Reading and writing through one view operator; `read` None means the operator itself."""

    write: Callable[[Piece], SSAValue]
    read: Callable[[Piece], SSAValue] | None = None
    needs_base: bool = False


# Shapes


def _read_shape(piece: Piece) -> SSAValue:
    """The sizes that a view-like operator was asked for, or the static ones of its result."""
    shape = shape_of(piece.codec.result)
    if DYNAMIC_INDEX not in shape:
        return reshape(piece.b, piece.value, shape, piece.type)
    asked = piece.codec.arguments()[0]
    if not is_sequence(asked) or len(asked) != len(shape):
        raise ValueError(f"the sizes of {piece.codec.view.target} are not known")
    return reshape(piece.b, piece.value, [integer_argument(size) for size in asked], piece.type)


def _write_shape(piece: Piece) -> SSAValue:
    shape = shape_of(piece.codec.whole)
    sizes = piece.b.sizes(needed(piece.base)) if DYNAMIC_INDEX in shape else shape
    return reshape(piece.b, piece.value, sizes, piece.type)


def _same(piece: Piece) -> SSAValue:
    return piece.value


# Permutations


def _write_permute(piece: Piece) -> SSAValue:
    order = piece.codec.arguments()[0]
    if not is_sequence(order):
        raise ValueError("permute without an order")
    inverse = [0] * len(order)
    for position, dimension in enumerate(order):
        number = integer_argument(dimension)
        if not isinstance(number, int):
            raise ValueError("permute with a dynamic order")
        inverse[number % len(order)] = position
    return piece.call(aten.permute.default, piece.value, inverse)


def _write_again(piece: Piece) -> SSAValue:
    """The operator is its own inverse."""
    return piece.call(piece.codec.overload, piece.value, *piece.codec.arguments())


# Parts


def _scatter(overload: Overload) -> Rule:
    def write(piece: Piece) -> SSAValue:
        return piece.call(overload, needed(piece.base), piece.value, *piece.codec.arguments())

    return Rule(write, None, needs_base=True)


# Element types


def _bits(piece: Piece) -> SSAValue:
    """The same bits, as elements of the type that is asked for."""
    element, value = element_type_of(piece.type), piece.value
    if element_type_of(value.type) == element:
        return value
    if byte_size(element_type_of(value.type)) != byte_size(element):
        value = contiguous(piece.b, value)
    return piece.call(aten.view.dtype, value, element)


def _is_bits(piece: Piece) -> bool:
    return piece.codec.overload is aten.view.dtype


def _read_view(piece: Piece) -> SSAValue:
    return _bits(piece) if _is_bits(piece) else _read_shape(piece)


def _write_view(piece: Piece) -> SSAValue:
    return _bits(piece) if _is_bits(piece) else _write_shape(piece)


def _as_complex(piece: Piece) -> SSAValue:
    return piece.call(aten.view_as_complex.default, contiguous(piece.b, piece.value))


def _as_real(piece: Piece) -> SSAValue:
    return piece.call(aten.view_as_real.default, piece.value)


# Anything else: by the positions of the elements


def _positions(piece: Piece, base: SSAValue) -> SSAValue:
    """For each element of the window, its row-major position in the base."""
    sizes, shape = piece.b.sizes(base), shape_of(piece.codec.whole)
    flat = iota(piece.b, piece.b.product(sizes), device_of(base.type))
    grid = piece.b.value(aten.reshape.default, [flat, list(sizes)], TensorType(i64, shape))
    window = TensorType(i64, shape_of(piece.codec.result))
    return piece.b.value(piece.codec.overload, [grid, *piece.codec.arguments()], window)


def _write_by_index(piece: Piece) -> SSAValue:
    base = needed(piece.base)
    positions = _positions(piece, base)
    flat_type = TensorType(element_type_of(piece.type), [count(shape_of(piece.type))])
    flat = piece.b.value(aten.reshape.default, [base, [-1]], flat_type)
    new = piece.b.value(aten.index_put.default, [flat, [positions], piece.value, False], flat_type)
    return piece.call(aten.reshape.default, new, piece.b.sizes(base))


_BY_INDEX = Rule(_write_by_index, None, needs_base=True)

_RULES: dict[OpOverloadPacket[..., object], Rule] = {
    aten.view: Rule(_write_view, _read_view),
    aten._unsafe_view: Rule(_write_shape, _read_shape),
    aten._reshape_alias: Rule(_write_shape, _read_shape),
    aten.unsqueeze: Rule(_write_shape),
    aten.squeeze: Rule(_write_shape),
    aten.expand: Rule(_write_shape),
    aten.alias: Rule(_same, _same),
    aten.detach: Rule(_same, _same),
    aten.lift_fresh: Rule(_same, _same),
    aten.permute: Rule(_write_permute),
    aten.transpose: Rule(_write_again),
    aten.t: Rule(_write_again),
    aten._conj: Rule(_write_again),
    aten._neg_view: Rule(_write_again),
    aten.view_as_real: Rule(_as_complex),
    aten.view_as_complex: Rule(_as_real, _as_complex),
    aten.select: _scatter(aten.select_scatter.default),
    aten.slice: _scatter(aten.slice_scatter.default),
    aten.diagonal: _scatter(aten.diagonal_scatter.default),
}
"""The inverses of PyTorch's view operators; operators that are not here go by the positions of their elements."""
