"""Windows by size, stride and offset (`as_strided`), which refer to the storage whatever they are taken of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.functionalize.views import Codec, contiguous, count, iota, needed, reshape
from vllm_ir.dialects.vllm_ir.types import BufferType, contiguous_strides, device_of, element_type_of, shape_of
from vllm_ir.frontends.fx.build import CallBuilder

aten = torch.ops.aten


class FlattenCodec(Codec):
    """The dense memory of the base as one dimension, in memory order."""

    def __init__(self, base: BufferType, order: Sequence[int]) -> None:
        """`order` lists the dimensions of the base from the largest stride to the smallest."""
        self.base = base
        self.order = list(order)
        self.identity = self.order == sorted(self.order)

    @property
    def needs_base(self) -> bool:
        """See `Codec`."""
        return False

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        """See `Codec`."""
        if not self.identity:
            shape = [shape_of(self.base)[dimension] for dimension in self.order]
            base = b.value(aten.permute.default, [base, self.order], TensorType(element_type_of(window), shape))
        return reshape(b, base, [-1], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        """See `Codec`."""
        shape = [shape_of(self.base)[dimension] for dimension in self.order]
        if self.identity:
            return reshape(b, value, b.sizes(needed(base)) if DYNAMIC_INDEX in shape else shape, whole)
        ordered = reshape(b, value, shape, TensorType(element_type_of(whole), shape))
        inverse = [self.order.index(dimension) for dimension in range(len(self.order))]
        return b.value(aten.permute.default, [ordered, inverse], whole)


class BitsCodec(Codec):
    """One-dimensional memory as elements of another type."""

    @property
    def needs_base(self) -> bool:
        """See `Codec`."""
        return False

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        """See `Codec`."""
        return b.value(aten.view.dtype, [contiguous(b, base), element_type_of(window)], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        """See `Codec`."""
        return b.value(aten.view.dtype, [contiguous(b, value), element_type_of(whole)], whole)


class StridedCodec(Codec):
    """A strided window onto one-dimensional memory; `offset` counts from its first element."""

    def __init__(
        self, sizes: Sequence[int | SSAValue], strides: Sequence[int | SSAValue], offset: int | SSAValue
    ) -> None:
        """Sizes, strides and offset in elements."""
        self.sizes, self.strides, self.offset = list(sizes), list(strides), offset

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        """See `Codec`."""
        if (block := self._block()) is None:
            return b.value(aten.index.Tensor, [base, [self._positions(b, device_of(base.type))]], window)
        piece = base
        if block != (0, shape_of(base.type)[0]):
            length = TensorType(element_type_of(window), [block[1] - block[0]])
            piece = b.value(aten.slice.Tensor, [base, 0, *block, 1], length)
        return reshape(b, piece, self.sizes, window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        """See `Codec`."""
        if (block := self._block()) is None:
            positions = self._positions(b, device_of(whole))
            return b.value(aten.index_put.default, [needed(base), [positions], value, False], whole)
        length = block[1] - block[0]
        flat = reshape(b, value, [length], TensorType(element_type_of(whole), [length]))
        if block == (0, shape_of(whole)[0]):
            return flat
        return b.value(aten.slice_scatter.default, [needed(base), flat, 0, *block, 1], whole)

    def is_all_of(self, whole: Attribute) -> bool:
        """Whether the window is all of the memory, in order: a new value of it then needs no old one."""
        return self._block() == (0, shape_of(whole)[0])

    def _block(self) -> tuple[int, int] | None:
        """Start and end, if the window is row-major memory without gaps."""
        sizes = [size for size in self.sizes if isinstance(size, int)]
        if len(sizes) != len(self.sizes) or not isinstance(self.offset, int):
            return None
        steps = zip(sizes, self.strides, contiguous_strides(sizes), strict=True)
        if any(size != 1 and stride != step for size, stride, step in steps):
            return None
        return self.offset, self.offset + count(sizes)

    def _positions(self, b: CallBuilder, device: str) -> SSAValue:
        """The position of each element: the sum of one term for each dimension, and the offset."""
        known = [size if isinstance(size, int) else DYNAMIC_INDEX for size in self.sizes]
        total: SSAValue | None = None
        for dimension in range(len(self.sizes)):
            term = self._term(b, dimension, device)
            if total is None:
                total = term
            else:
                shape = [*known[: dimension + 1], *[1] * (len(known) - dimension - 1)]
                total = b.value(aten.add.Tensor, [total, term], TensorType(i64, shape))
        if total is None:
            scalar = TensorType(i64, [])
            return b.value(aten.full.default, [[], self.offset], scalar, dtype=i64, device=torch.device(device))
        return total if self._starts_at_offset() else b.value(aten.add.Scalar, [total, self.offset], total.type)

    def _starts_at_offset(self) -> bool:
        """Whether the term of the first dimension holds the offset already."""
        first = self.strides[0]
        return isinstance(self.offset, int) and isinstance(first, int) and first != 0

    def _term(self, b: CallBuilder, dimension: int, device: str) -> SSAValue:
        size, stride, rest = self.sizes[dimension], self.strides[dimension], len(self.sizes) - dimension - 1
        length = size if isinstance(size, int) else DYNAMIC_INDEX
        by_iota = isinstance(stride, int) and stride != 0
        start = self.offset if dimension == 0 and self._starts_at_offset() and isinstance(self.offset, int) else 0
        steps = iota(b, size, device, start, stride if by_iota and isinstance(stride, int) else 1)
        if not by_iota:
            steps = b.value(aten.mul.Scalar, [steps, stride], TensorType(i64, [length]))
        if rest:
            shape = TensorType(i64, [length, *[1] * rest])
            steps = b.value(aten.reshape.default, [steps, [size, *[1] * rest]], shape)
        return steps
