"""What a program takes and returns around its StableHLO function: everything that the function itself cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import torch
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, BlockArgument
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.stablehlo.aliases import aliased_arguments, entry_function
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.outputs import output_items
from vllm_ir.dialects.vllm_ir.types import contiguous_strides, device_of, shape_of, sizes_of, strides_of
from vllm_ir.frontends.fx.types import is_tensor, known_dtype
from vllm_ir.frontends.fx.values import decode

_HOW = 'programs are made for static sizes: run specialize{sizes="s0=16"} first, with your symbols and numbers'


@dataclass(frozen=True)
class TensorFacts:
    """A tensor that goes in or out."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...]
    """Those of eager mode, in elements."""

    @property
    def is_contiguous(self) -> bool:
        """Whether it is row-major."""
        return self.strides == contiguous_strides(self.shape)


@dataclass(frozen=True)
class Argument:
    """An argument of the program; its parameter of the function has the same position."""

    name: str
    tensor: TensorFacts | None
    """None for an integer, which the function takes as a `tensor<i64>`."""


@dataclass(frozen=True)
class Result:
    """An output that the function computes."""

    index: int
    """Position among the results of the function."""
    tensor: TensorFacts | None
    """None for an integer, which the function returns as a `tensor<i64>`."""


@dataclass(frozen=True)
class Alias:
    """An output that is an argument."""

    argument: int


@dataclass(frozen=True)
class View:
    """An output that is another window onto the storage of an argument."""

    argument: int
    tensor: TensorFacts
    offset: int
    """In elements of the window's dtype, from the start of the storage."""


@dataclass(frozen=True)
class Plain:
    """An output that is no tensor and is known: None or a number."""

    value: object


Output: TypeAlias = Result | Alias | View | Plain


@dataclass(frozen=True)
class Signature:
    """The arguments and outputs of a program."""

    arguments: tuple[Argument, ...]
    outputs: tuple[Output, ...]
    """Those of the user, in order."""
    writes: Mapping[int, int] = field(default_factory=lambda: {})
    """`{result of the function: argument}`: the results that are new contents of arguments."""
    io_map: Mapping[int, int] = field(default_factory=lambda: {})
    """`{output: argument}`, where outputs count those of the user and then the arguments that were appended."""

    @property
    def output_views(self) -> dict[int, tuple[int, tuple[int, ...], tuple[int, ...], int, torch.dtype]]:
        """`{output: (argument, shape, strides, offset, dtype)}` of the outputs that are other windows."""
        return {
            position: (output.argument, output.tensor.shape, output.tensor.strides, output.offset, output.tensor.dtype)
            for position, output in enumerate(self.outputs)
            if isinstance(output, View)
        }


def signature_of(function: FuncOp, *, any_device: bool = False) -> Signature:
    """The signature of a pure function.

    Raises:
        VerifyException: the function is not pure, or has a size that is not static, or a tensor that is not on the CPU
            without `any_device`.
    """

    def facts(type: Attribute, what: str) -> TensorFacts | None:
        return facts_of(type, what, any_device=any_device)

    count = function.original_output_count
    if not function.is_pure or count is None:
        raise VerifyException(f"@{function.sym_name.data} is not pure; run alias-outputs,functionalize first")
    arguments = tuple(
        Argument(argument.name_hint or str(index), facts(argument.type, _argument_name(argument, index)))
        for index, argument in enumerate(function.block.args)
    )
    terminator, io_map, views = function.terminator, function.io_map, function.output_views
    items = output_items(terminator)
    structure = cast("tuple[object, ...]", decode(terminator.structure, [None] * len(terminator.operands), str))
    outputs: list[Output] = []
    for position, (operand, plain) in enumerate(zip(items[:count], structure, strict=False)):
        if operand is None:
            outputs.append(Plain(plain))
        elif position in io_map:
            outputs.append(Alias(io_map[position]))
        elif position in views:
            outputs.append(_view(position, views[position]))
        else:
            outputs.append(Result(operand, facts(terminator.operands[operand].type, f"output {position}")))
    writes = {
        operand: io_map[position]
        for position, operand in enumerate(items)
        if operand is not None and position in io_map
    }
    return Signature(arguments, tuple(outputs), writes, io_map)


def signature_of_stablehlo(module: ModuleOp) -> Signature:
    """The signature of a StableHLO module alone: outputs are results, and the aliases are what arguments state."""
    function = entry_function(module)
    aliases = aliased_arguments(module)
    inputs, outputs = function.function_type.inputs.data, function.function_type.outputs.data
    arguments = tuple(Argument(str(i), facts_of(kind, f"argument {i}")) for i, kind in enumerate(inputs))
    count = function.attributes.get("vllm_ir.original_output_count")
    kept = cast(IntegerAttr, count).value.data if isinstance(count, IntegerAttr) else len(outputs)
    results = [
        Alias(aliases[index]) if index in aliases else Result(index, facts_of(kind, f"output {index}"))
        for index, kind in enumerate(outputs)
    ]
    return Signature(arguments, tuple(results[:kept]), aliases, aliases)


def _argument_name(argument: BlockArgument, index: int) -> str:
    return f"argument {index}" + (f" (%{argument.name_hint})" if argument.name_hint else "")


def facts_of(type: Attribute, what: str, *, any_device: bool = False) -> TensorFacts | None:
    """What is known of a tensor type; None for an integer.

    Raises:
        VerifyException: a size or stride is not static, or the tensor is not on the CPU without `any_device`.
    """
    if not is_tensor(type):
        return None
    device = device_of(type)
    if device != "cpu" and not any_device:
        raise VerifyException(f"{what} is on {device}; XLA's CPU client takes tensors on cpu")
    strides = strides_of(type)
    if strides is None or not all(isinstance(stride, int) for stride in strides) or min(shape_of(type), default=0) < 0:
        raise VerifyException(_symbolic(type, what))
    return TensorFacts(shape_of(type), known_dtype(type.element_type), cast("tuple[int, ...]", strides))


def _symbolic(type: Attribute, what: str) -> str:
    """The message for a type that is not static."""
    for dimension, size in enumerate(sizes_of(type)):
        if isinstance(size, str):
            return f"dimension {dimension} of {what} has the symbolic size {size}; {_HOW}"
    return f"{what} of type {type} has symbolic strides; {_HOW}"


def _view(position: int, view: DictionaryAttr) -> View:
    fields: Mapping[str, Attribute] = view.data
    shape = _numbers(position, fields["shape"])
    strides = _numbers(position, fields["strides"]) if "strides" in fields else contiguous_strides(shape)
    facts = TensorFacts(shape, known_dtype(fields["dtype"]), strides)
    return View(_number(position, fields["input"]), facts, _number(position, fields["offset"]))


def _numbers(position: int, entries: Attribute) -> tuple[int, ...]:
    return tuple(_number(position, entry) for entry in cast("ArrayAttr[Attribute]", entries).data)


def _number(position: int, entry: Attribute) -> int:
    if isinstance(entry, StringAttr):
        raise VerifyException(f"output {position} has the symbolic size {entry.data}; specialise it to run the program")
    return cast(IntegerAttr, entry).value.data
