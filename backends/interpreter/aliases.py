"""Alias facts of a function, carried out: outputs that are arguments are put there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.utils.exceptions import InterpretationError

from vllm_ir.backends.interpreter.arguments import final_window
from vllm_ir.backends.interpreter.function import Frame
from vllm_ir.dialects.vllm_ir.types import BufferType, contiguous_strides, offset_of
from vllm_ir.frontends.fx.types import known_dtype


def user_outputs(frame: Frame, result: object, arguments: Sequence[object]) -> object:
    """What the program returns, of what a function with alias facts gives; any other function's result as it is."""
    function = frame.function
    count = function.original_output_count
    if count is None or not isinstance(result, tuple):
        return result
    outputs = list(cast("tuple[object, ...]", result))
    if function.is_pure:
        for position, index in function.io_map.items():
            outputs[position] = _put(frame, outputs[position], arguments[index], index)
        for position, view in function.output_views.items():
            outputs[position] = _window(frame, view, arguments)
    return tuple(outputs[:count])


def _put(frame: Frame, value: object, argument: object, index: int) -> object:
    """Write a value to the argument that it is, through the window that the argument has after the call."""
    if not isinstance(value, Tensor) or not isinstance(argument, Tensor):
        raise InterpretationError(f"output {value!r} is said to be argument {index}, which is {argument!r}")
    window = final_window(frame, frame.function.block.args[index], argument)
    (argument if window is None else argument.as_strided(*window)).copy_(value)
    return argument


def _window(frame: Frame, view: DictionaryAttr, arguments: Sequence[object]) -> Tensor:
    """Another window onto the storage of an argument."""
    index = cast(IntegerAttr, view.data["input"]).value.data
    argument = arguments[index]
    if not isinstance(argument, Tensor):
        raise InterpretationError(f"an output is said to be a window onto argument {index}, which is {argument!r}")
    shape = _numbers(frame, view, "shape")
    strides = _numbers(frame, view, "strides") if "strides" in view.data else list(contiguous_strides(shape))
    kind = frame.function.block.args[index].type
    stated = frame.sizes.value(offset_of(kind)) if isinstance(kind, BufferType) else None
    # Types count from the start of the storage; the caller's tensor may lie anywhere in its own.
    start = int(argument.storage_offset())
    shift = 0 if stated is None else (start - stated) * argument.element_size()
    dtype = known_dtype(view.data["dtype"])
    offset = _number(frame, "offset", view.data["offset"]) + shift // dtype.itemsize
    flat = torch.empty(0, dtype=dtype, device=argument.device).set_(argument.untyped_storage())
    return flat.as_strided(shape, strides, offset)


def _numbers(frame: Frame, view: DictionaryAttr, field: str) -> list[int]:
    return [_number(frame, field, entry) for entry in cast(ArrayAttr[Attribute], view.data[field]).data]


def _number(frame: Frame, field: str, entry: Attribute) -> int:
    stated = entry.data if isinstance(entry, StringAttr) else cast(IntegerAttr, entry).value.data
    if (known := frame.sizes.value(stated)) is None:
        raise InterpretationError(f"{field} {stated} of an output's window is not known")
    return known
