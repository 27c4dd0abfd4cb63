"""Inputs of a function: checked against its signature, and given back as it promises."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import BlockArgument

from vllm_ir.backends.interpreter.function import Frame, described
from vllm_ir.backends.interpreter.layout import laid_out, stated_strides
from vllm_ir.backends.interpreter.poison import Poison
from vllm_ir.dialects.vllm_ir.function import DONATED, MUTATED, STORAGE, SYMBOL, WINDOW, FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, sizes_of
from vllm_ir.frontends.fx.types import is_shaped, known_dtype
from vllm_ir.frontends.ops.memory import may_overlap


def bind_arguments(frame: Frame, inputs: Sequence[object]) -> None:
    """Make `inputs` the arguments of a frame's function; `ValueError` if one does not fit."""
    function = frame.function
    values = _complete(function, inputs)
    for argument, value in zip(function.block.args, values, strict=True):
        _learn(frame, argument, value)
    for argument, value in zip(function.block.args, values, strict=True):
        frame.values[argument] = _bound(frame, argument, value)
    _check_sharing(function, values)


def give_back(frame: Frame, poison: Poison) -> None:
    """Leave the caller's tensors as the signature says: with new windows, and garbage where memory was donated."""
    for argument in frame.function.block.args:
        value = frame.values[argument]
        if not isinstance(value, Tensor):
            continue
        if DONATED in frame.function.argument_attributes(argument.index):
            poison.spoil(value)
        if (window := final_window(frame, argument, value)) is not None:
            value.as_strided_(*window)


def final_window(frame: Frame, argument: BlockArgument, value: Tensor) -> tuple[list[int], tuple[int, ...], int] | None:
    """Sizes, strides and offset that the caller's tensor has after the call; None if they do not change."""
    window = frame.function.argument_attributes(argument.index).get(WINDOW)
    if not isinstance(window, BufferType):
        return None
    sizes = [_number(frame, argument, size) for size in sizes_of(window)]
    if (strides := stated_strides(window, sizes, frame.sizes)) is None:
        raise ValueError(f"{_name(argument)} gets a window {window}, whose strides are not known")
    offset = _number(frame, argument, offset_of(window))
    if isinstance(argument.type, BufferType):
        # Types count from the start of the storage; the caller's tensor may lie anywhere in its own.
        offset += int(value.storage_offset()) - _number(frame, argument, offset_of(argument.type))
    return sizes, strides, offset


def _complete(function: FuncOp, inputs: Sequence[object]) -> list[object]:
    """The inputs, with numbers for symbols where they were left out: these are learned from sizes."""
    names = [function.argument_attributes(index).get(SYMBOL) for index in range(len(function.block.args))]
    if len(inputs) == sum(name is None for name in names) < len(names):
        remaining = iter(inputs)
        return [next(remaining) if name is None else None for name in names]
    if len(inputs) != len(names):
        raise ValueError(f"@{function.sym_name.data} takes {len(names)} inputs, {len(inputs)} were given")
    return list(inputs)


def _name(argument: BlockArgument) -> str:
    return f"input {argument.index} (%{argument.name_hint or argument.index})"


def _learn(frame: Frame, argument: BlockArgument, value: object) -> None:
    """Check the kind of an input, and learn symbols from it."""
    kind = argument.type
    if is_shaped(kind):
        dtype, stated = known_dtype(kind.element_type), sizes_of(kind)
        if not isinstance(value, Tensor):
            raise ValueError(f"{_name(argument)} is a {type(value).__name__}, it takes a tensor")
        if value.dtype != dtype or value.dim() != len(stated):
            raise ValueError(f"{_name(argument)} is {described(value)}, it takes {kind}")
        for size, actual in zip(stated, value.shape, strict=True):
            frame.sizes.bind(size, actual)
        return
    if isinstance(value, Tensor):
        raise ValueError(f"{_name(argument)} is a tensor, it takes {kind}")
    symbol = frame.function.argument_attributes(argument.index).get(SYMBOL)
    if isinstance(symbol, StringAttr) and isinstance(value, int):
        frame.sizes.bind(symbol.data, value)


def _bound(frame: Frame, argument: BlockArgument, value: object) -> object:
    kind = argument.type
    symbol = frame.function.argument_attributes(argument.index).get(SYMBOL)
    if isinstance(symbol, StringAttr):
        known = frame.sizes.value(symbol.data)
        if known is None or value not in (None, known):
            raise ValueError(f"{_name(argument)} is {value}, the sizes of other inputs make {symbol.data} = {known}")
        return known
    if not isinstance(value, Tensor) or not is_shaped(kind):
        return value
    for size, actual in zip(sizes_of(kind), value.shape, strict=True):
        if frame.sizes.value(size) not in (None, actual):
            wanted = [frame.sizes.value(stated) for stated in sizes_of(kind)]
            raise ValueError(f"{_name(argument)} is {described(value)}, it takes {kind} with sizes {wanted}")
    strides = stated_strides(kind, value.shape, frame.sizes)
    if strides is None or value.numel() == 0:
        return value
    steps = zip(value.shape, value.stride(), strides, strict=True)
    if all(size == 1 or step == wanted for size, step, wanted in steps):
        return value
    if isinstance(kind, BufferType):
        raise ValueError(f"{_name(argument)} has strides {list(value.stride())}, it takes {list(strides)}")
    return laid_out(value, strides)


def _check_sharing(function: FuncOp, values: Sequence[object]) -> None:
    """Arguments share memory where the signature says so, and what is written overlaps nothing else."""
    arguments = zip(function.block.args, values, strict=True)
    shaped = [(argument, value) for argument, value in arguments if isinstance(value, Tensor)]
    for position, (argument, value) in enumerate(shaped):
        given = function.argument_attributes(argument.index)
        for other, second in shaped[:position]:
            others = function.argument_attributes(other.index)
            same = STORAGE in given and given[STORAGE] == others.get(STORAGE)
            shares = value.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
            if same and not shares and value.numel() and second.numel():
                raise ValueError(f"{_name(other)} and {_name(argument)} are in different memory, they take one storage")
            writes = {MUTATED, DONATED} & (given.keys() | others.keys())
            if not same and shares and writes and may_overlap(value, second):
                raise ValueError(f"{_name(other)} and {_name(argument)} overlap, and the program writes one of them")


def _number(frame: Frame, argument: BlockArgument, size: int | str) -> int:
    if (known := frame.sizes.value(size)) is None:
        raise ValueError(f"{_name(argument)} gets a window of size {size}, which is not known")
    return known
