"""The windows that view operators give, found by running them on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, NoneAttr, StringAttr, TensorType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import SYMBOL, FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType, LayoutAttr, element_type_of, sizes_of
from vllm_ir.frontends.fx.arithmetic import INTEGER_FUNCTIONS, compute
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.fakes import ambient_fake_mode
from vllm_ir.frontends.fx.storages import storage_key, tensors_in
from vllm_ir.frontends.fx.symbols import Symbols, example_tensor
from vllm_ir.frontends.fx.torch_objects import Overload
from vllm_ir.frontends.fx.types import TypeCache, is_shaped, known_dtype, static_window
from vllm_ir.frontends.fx.values import decode

Windows: TypeAlias = tuple[BufferType | None, ...]
"""For each result of a view operator its window; None where the result is not in the memory of the base."""

_NONE = NoneAttr()
_Arguments: TypeAlias = ArrayAttr[Attribute]


@lru_cache(maxsize=4096)
def whole_window(kind: TensorType[Attribute]) -> BufferType:
    """The window of a new tensor of a type, alone in its storage, with the strides that the type records."""
    layout = kind.encoding
    if not isinstance(layout, LayoutAttr):
        return BufferType(kind.shape, kind.element_type, _NONE, _NONE, _NONE, _NONE)
    return BufferType(kind.shape, kind.element_type, layout.sizes, layout.strides, _NONE, layout.device)


class ViewWindows:
    """Runs view operators on examples of windows; equal calls on equal windows run once."""

    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self._types = TypeCache()
        self._symbols: Symbols | None = None
        self._mode: FakeTensorMode | None = None
        self._known: dict[object, Windows | None] = {}

    def of(
        self,
        overload: Overload,
        args: _Arguments,
        kwargs: DictionaryAttr | None,
        base: BufferType,
        integers: Sequence[SSAValue],
    ) -> Windows | None:
        """Windows of the results of a view of `base`; None if they are not known.

        In the arguments, operand 0 stands for the base and the following ones for `integers`.
        """
        key = (overload, args, kwargs, base, *map(id, integers))
        if key not in self._known:
            self._known[key] = self._run(overload, args, kwargs, base, integers)
        return self._known[key]

    def negations(self, overload: Overload, args: _Arguments, base: BufferType) -> tuple[bool, bool]:
        """Whether a view conjugates what the memory of `base` holds, and whether it negates it.

        Neither depends on sizes, so one element stands for the memory; the view has no integer operands.
        """
        example = torch.empty((1,) * len(base.shape), dtype=known_dtype(element_type_of(base)), device="meta")
        positional = [decode(tree, [example], str) for tree in args.data]
        try:
            result = cast("Callable[..., object]", overload)(*positional)
        except Exception:  # noqa: BLE001  # whatever a fake kernel stumbles over
            return False, False  # the view needs more elements: it moves them, as those that negate do not
        [tensor, *_] = [*tensors_in(result), example]
        return tensor.is_conj(), tensor.is_neg()

    def _run(
        self,
        overload: Overload,
        args: _Arguments,
        kwargs: DictionaryAttr | None,
        base: BufferType,
        integers: Sequence[SSAValue],
    ) -> Windows | None:
        if static_window(base) is not None and not integers:
            found = self._call(overload, args, kwargs, [_static_example(base)])
            return found and tuple(None if window is None else _on(base.device, window) for window in found)
        if "?" in sizes_of(base):
            return None
        with self._symbolic_mode():
            values = [self._integer(operand) for operand in integers]
            if None in values:
                return None
            example = example_tensor(base, None, self._symbols, {})
            found = self._call(overload, args, kwargs, [example, *values])
        if found is None or self._symbols is None:
            return found
        return tuple(None if window is None else self._symbols.original(window) for window in found)

    def _call(
        self, overload: Overload, args: _Arguments, kwargs: DictionaryAttr | None, operands: list[object]
    ) -> Windows | None:
        positional = [decode(tree, operands, str) for tree in args.data]
        keywords = {name: decode(tree, operands, str) for name, tree in (kwargs.data.items() if kwargs else ())}
        try:
            result = cast("Callable[..., object]", overload)(*positional, **keywords)
            base, results = cast(Tensor, operands[0]), list(tensors_in(result))
            if any(_reads_otherwise(base, tensor) for tensor in results):
                return None
            key = storage_key(base)
            return tuple(self._types.buffer(tensor) if storage_key(tensor) == key else None for tensor in results)
        except Exception:  # noqa: BLE001  # whatever a fake kernel stumbles over
            return None  # not a view of this layout

    def _symbolic_mode(self) -> FakeTensorMode:
        if self._mode is None:
            self._mode = ambient_fake_mode() or FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
            self._symbols = Symbols(self._mode)
        return self._mode

    def _integer(self, value: SSAValue) -> object:
        """The value of an integer in terms of the symbols of the function; None if it is not known."""
        symbols = self._symbols
        if symbols is None:
            return None
        if isinstance(value, BlockArgument):
            name = self.function.argument_attributes(value.index).get(SYMBOL)
            return symbols.size(name.data) if isinstance(name, StringAttr) else None
        match value.owner:
            case arith.ConstantOp() as constant if isinstance(constant.value, IntegerAttr):
                return constant.value.value.data
            case CallOp() as call if call.target == "aten.sym_size.int" and _is_of_tensor(call):
                dimension = call.args.data[1]
                sizes = sizes_of(call.operands[0].type)
                number = dimension.value.data if isinstance(dimension, IntegerAttr) else len(sizes)
                size = sizes[number] if -len(sizes) <= number < len(sizes) else "?"
                return None if size == "?" else symbols.size(size)
            case Operation() as op if (function := INTEGER_FUNCTIONS.get(type(op))) is not None:
                operands = [self._integer(operand) for operand in op.operands]
                return None if None in operands else _computed(function, operands)
            case _:
                return None


def _is_of_tensor(call: CallOp) -> bool:
    return bool(call.operands) and is_shaped(call.operands[0].type)


def _computed(function: Callable[..., object], operands: Sequence[object]) -> object:
    try:
        return compute(function, operands)
    except FxImportError:
        return None


def _reads_otherwise(base: Tensor, view: Tensor) -> bool:
    """Whether a view gives other values than the memory holds (lazy conjugation and negation)."""
    return view.is_conj() != base.is_conj() or view.is_neg() != base.is_neg()


def _on(device: Attribute, window: BufferType) -> BufferType:
    """A window found on a tensor without data, on the device that it is really on."""
    if window.device == device:
        return window
    return BufferType.new([window.shape, window.element_type, window.sizes, window.strides, window.offset, device])


def _static_example(window: BufferType) -> Tensor:
    known = static_window(window)
    if known is None:
        raise ValueError(f"{window} is not static")
    sizes, strides, offset = known
    length = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
    # A window of another element type must begin and end with whole elements.
    dtype = known_dtype(element_type_of(window))
    memory = torch.empty(max(length, offset, 1) * dtype.itemsize + 16, dtype=torch.uint8, device="meta")
    return memory[: memory.numel() // 16 * 16].view(dtype).as_strided(sizes, strides, offset)


__all__ = ["ViewWindows", "Windows", "whole_window"]
