"""Results of operators that split a tensor (`split`, `unbind`, `chunk`): each is a slice or a selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from xdsl.dialects.builtin import DYNAMIC_INDEX
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.functionalize.views import Codec, ViewCodec, needed
from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, shape_of
from vllm_ir.frontends.fx.build import CallBuilder, integer_argument, python_argument
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.torch_objects import is_overload, schema_of
from vllm_ir.frontends.fx.values import is_sequence

aten = torch.ops.aten

Size: TypeAlias = int | SSAValue


def view_codecs(view: ViewOp, whole: BufferType) -> list[Codec]:
    """A codec for each result of a view operator; `whole` is the window that is viewed."""
    windows = [result.type for result in view.results if isinstance(result.type, BufferType)]
    target = resolve(view.target)
    if not is_overload(target):
        raise TypeError(f"@{view.target} is not an operator")
    if str(schema_of(target).returns[0].type) != "List[Tensor]":
        return [ViewCodec(view, window, whole) for window in windows]
    names = [argument.name for argument in schema_of(target).arguments]
    trees = [*view.args.data, *(view.kwargs.data.values() if view.kwargs else ())]
    arguments = dict(zip(names, (python_argument(tree, view.operands) for tree in trees), strict=False))
    dimension = integer_argument(arguments.get("dim", 0))
    if not isinstance(dimension, int):
        raise ValueError("the dimension of a split is dynamic")
    dimension %= max(len(shape_of(whole)), 1)
    if all(len(shape_of(window)) < len(shape_of(whole)) for window in windows):
        return [SelectionCodec(dimension, index) for index in range(len(windows))]
    return _slices(windows, dimension, arguments)


def _slices(windows: list[BufferType], dimension: int, arguments: dict[str, object]) -> list[Codec]:
    codecs: list[Codec] = []
    front: list[Size] = []
    start = 0
    for index, window in enumerate(windows):
        size = _size(window, index, dimension, arguments)
        codecs.append(SliceCodec(dimension, start, tuple(front), size))
        if isinstance(size, int):
            start += size
        else:
            front.append(size)
    return codecs


def _size(window: BufferType, index: int, dimension: int, arguments: dict[str, object]) -> Size:
    size = shape_of(window)[dimension]
    if size != DYNAMIC_INDEX:
        return size
    for name in ("split_sizes", "split_size"):
        asked = arguments.get(name)
        if is_sequence(asked):
            return integer_argument(asked[index])
        # All pieces but the last have the size asked for; of the last only the end matters, which slicing clamps.
        if asked is not None:
            return integer_argument(asked)
    raise ValueError("the sizes of the pieces of a split are not known")


@dataclass(frozen=True)
class SelectionCodec(Codec):
    """One of the slices that `unbind` gives."""

    dimension: int
    index: int

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        """See `Codec`."""
        return b.value(aten.select.int, [base, self.dimension, self.index], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        """See `Codec`."""
        return b.value(aten.select_scatter.default, [needed(base), value, self.dimension, self.index], whole)


@dataclass(frozen=True)
class SliceCodec(Codec):
    """A piece of `size` elements, behind `start` elements and those of the pieces whose sizes are in `front`."""

    dimension: int
    start: int
    front: tuple[Size, ...]
    size: Size

    def _bounds(self, b: CallBuilder) -> tuple[Size, Size]:
        start: Size = self.start
        for size in self.front:
            start = b.sum(start, size)
        return start, b.sum(start, self.size)

    def read(self, b: CallBuilder, base: SSAValue, window: Attribute) -> SSAValue:
        """See `Codec`."""
        return b.value(aten.slice.Tensor, [base, self.dimension, *self._bounds(b), 1], window)

    def write(self, b: CallBuilder, base: SSAValue | None, value: SSAValue, whole: Attribute) -> SSAValue:
        """See `Codec`."""
        return b.value(aten.slice_scatter.default, [needed(base), value, self.dimension, *self._bounds(b), 1], whole)
