"""Alias facts: which result of a function is which argument.

A function is *marked* by the attribute `vllm_ir.original_output_count` (`alias-outputs` does it). What it returns is
then a flat list, each operand of the return for itself: first the outputs of the program, so many as the attribute
says, None and plain numbers among them, then the mutated arguments that no output is, in the order of the arguments.

Result attributes of a marked function, of which a result has at most one:

`vllm_ir.aliases = i`: the result is argument `i`, the same window onto its storage as the argument's final one. Each
argument is aliased by at most one result.
`vllm_ir.output_view = {input = i, shape = [...], strides = [...], offset = n, dtype = t}`: the result is another window
onto the storage of argument `i`; sizes and steps in elements of `dtype`, texts where symbolic; without `strides` the
window is row-major. An argument that is returned twice is such a window the second time.

A marked function that is `functional` is *pure*: tensors and numbers only, no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import OperationVerifyError, operand_text, operation_text, result_text, value_text
from vllm_ir.dialects.torch.arguments import OperandAttr, TupleAttr, children
from vllm_ir.dialects.vllm_ir.contract import (
    ALIASES,
    DONATED,
    OUTPUT_VIEW,
    STORAGE,
    WINDOW,
    Attributes,
    root_of,
    verify_attribute_kinds,
)
from vllm_ir.dialects.vllm_ir.expressions import verify_size
from vllm_ir.dialects.vllm_ir.types import (
    DTYPES,
    BufferType,
    element_type_of,
    offset_of,
    shape_of,
    sizes_of,
    strides_of,
)

ORIGINAL_OUTPUT_COUNT = "vllm_ir.original_output_count"

_KNOWN: Mapping[str, tuple[type[Attribute], str]] = {
    ALIASES: (IntegerAttr, "an integer"),
    OUTPUT_VIEW: (DictionaryAttr, "a dictionary"),
}
_REQUIRED = ("input", "shape", "offset", "dtype")
_FIELDS = ("input", "shape", "strides", "offset", "dtype")


def output_view(index: int, window: BufferType) -> DictionaryAttr:
    """What `vllm_ir.output_view` says of a window onto the storage of argument `index`."""

    def number(value: int | str) -> Attribute:
        return StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64)

    fields: dict[str, Attribute] = {
        "input": IntegerAttr(index, i64),
        "shape": ArrayAttr([number(size) for size in sizes_of(window)]),
        "offset": number(offset_of(window)),
        "dtype": window.element_type,
    }
    if (strides := strides_of(window)) is not None:
        fields["strides"] = ArrayAttr([number(step) for step in strides])
    return DictionaryAttr(fields)


def output_items(terminator: Operation) -> list[int | None]:
    """For each output of a marked function the operand of the return that it is; None for None and plain numbers."""
    structure = terminator.properties.get("structure")
    if not isinstance(structure, TupleAttr):
        raise VerifyException("outputs are not a flat tuple")
    return [item.index.data if isinstance(item, OperandAttr) else None for item in structure.items.data]


def final_type(kind: Attribute, attributes: Mapping[str, Attribute]) -> Attribute:
    """The type of an argument as the caller has it after the call."""
    window = attributes.get(WINDOW)
    if not isinstance(window, BufferType):
        return kind
    return window.tensor if isinstance(kind, TensorType) else window


def verify_outputs(count: Attribute, block: Block, results: Attributes, arguments: Attributes) -> None:
    """The alias facts of a marked function: known and in range, and true as far as types and storages show."""
    terminator = block.last_op
    if terminator is None:
        return
    items = _verify_count(count, terminator)
    original = cast(IntegerAttr, count).value.data
    aliased: dict[int, int] = {}
    for position, index in enumerate(items):
        given: Mapping[str, Attribute] = results[index] if index is not None else {}
        value = terminator.operands[index] if index is not None else None
        name = f"result {index}" + (f" ({value_text(value)})" if value is not None else "")
        verify_attribute_kinds(name, given, _KNOWN)
        if ALIASES in given and OUTPUT_VIEW in given:
            raise VerifyException(f"{name} has both {ALIASES} and {OUTPUT_VIEW}, it is one of the two")
        if position >= original and ALIASES not in given:
            raise VerifyException(
                f"{name} is output {position}, behind the {original} of the program, but has no {ALIASES}"
            )
        if index is None or value is None:
            continue
        if (number := given.get(ALIASES)) is not None:
            _verify_alias(name, cast(IntegerAttr, number).value.data, value, block, arguments)
            _verify_once(index, cast(IntegerAttr, number).value.data, aliased)
        elif (view := given.get(OUTPUT_VIEW)) is not None:
            _verify_view(name, cast(DictionaryAttr, view), value, block, arguments)
        elif (root := _argument_of(value)) is not None:
            raise VerifyException(
                f"{name} is memory of argument {root.index} ({value_text(root)}) and has neither {ALIASES} nor "
                f"{OUTPUT_VIEW}"
            )


def _verify_count(count: Attribute, terminator: Operation) -> list[int | None]:
    """The outputs are a flat list of operands, each for itself, and at least as many as there were."""
    if not isinstance(count, IntegerAttr):
        raise VerifyException(f"{ORIGINAL_OUTPUT_COUNT} is {count}, it takes an integer")
    structure = terminator.properties["structure"]
    if not isinstance(structure, TupleAttr) or any(list(children(item)) for item in structure.items.data):
        raise VerifyException(f"with {ORIGINAL_OUTPUT_COUNT} the outputs are a flat tuple, not {structure}")
    items = output_items(terminator)
    operands = [index for index in items if index is not None]
    if operands != list(range(len(terminator.operands))):
        raise VerifyException(
            f"with {ORIGINAL_OUTPUT_COUNT} each output is an operand of its own, in order; the operands are {operands}"
        )
    if not 0 <= count.value.data <= len(items):
        raise VerifyException(f"{ORIGINAL_OUTPUT_COUNT} is {count.value.data}, there are {len(items)} outputs")
    return items


def _is_shaped(kind: Attribute) -> bool:
    return isinstance(kind, TensorType | BufferType)


def _argument_of(value: SSAValue) -> BlockArgument | None:
    """The argument whose memory a buffer is."""
    root = root_of(value) if isinstance(value.type, BufferType) else None
    return root if isinstance(root, BlockArgument) else None


def _argument(name: str, index: int, block: Block, arguments: Attributes) -> BlockArgument:
    """The argument that a result names."""
    if not 0 <= index < len(block.args):
        raise VerifyException(f"{name} names argument {index}, the function has {len(block.args)}")
    argument = block.args[index]
    text = f"argument {index} ({value_text(argument)})"
    if not _is_shaped(argument.type):
        raise VerifyException(f"{name} names {text}, which has type {argument.type} and no memory")
    if DONATED in arguments[index]:
        raise VerifyException(f"{name} names {text}, which is donated")
    return argument


def _verify_alias(name: str, index: int, value: SSAValue, block: Block, arguments: Attributes) -> None:
    argument = _argument(name, index, block, arguments)
    expected = final_type(argument.type, arguments[index])
    if value.type != expected:
        raise VerifyException(f"{name} has type {value.type}, but aliases argument {index} of type {expected}")
    _verify_storage(name, value, argument, arguments)


def _verify_once(result: int, index: int, aliased: dict[int, int]) -> None:
    other = aliased.setdefault(index, result)
    if other != result:
        raise VerifyException(f"results {other} and {result} both alias argument {index}")


def _verify_storage(name: str, value: SSAValue, argument: BlockArgument, arguments: Attributes) -> None:
    """A buffer lies in the memory that it is said to lie in; values have none."""
    if not isinstance(value.type, BufferType):
        return
    root = _argument_of(value)
    if root is argument:
        return
    number = arguments[argument.index].get(STORAGE)
    if root is None or number is None or arguments[root.index].get(STORAGE) != number:
        truth = "no argument" if root is None else f"argument {root.index} ({value_text(root)})"
        raise VerifyException(f"{name} names argument {argument.index}, but its storage is that of {truth}")


def _verify_view(name: str, view: DictionaryAttr, value: SSAValue, block: Block, arguments: Attributes) -> None:
    for field in view.data:
        if field not in _FIELDS:
            raise VerifyException(
                f"{OUTPUT_VIEW} of {name} has the unknown field {field!r}; known are {', '.join(_FIELDS)}"
            )
    for field in _REQUIRED:
        if field not in view.data:
            raise VerifyException(f"{OUTPUT_VIEW} of {name} has no {field!r}")
    number = view.data["input"]
    if not isinstance(number, IntegerAttr):
        raise VerifyException(f"'input' of {OUTPUT_VIEW} of {name} is {number}, it takes an integer")
    argument = _argument(name, cast(IntegerAttr, number).value.data, block, arguments)
    if not _is_shaped(value.type):
        raise VerifyException(f"{name} has {OUTPUT_VIEW} but type {value.type}")
    dtype, own = view.data["dtype"], element_type_of(value.type)
    if dtype not in DTYPES or dtype != own:
        raise VerifyException(f"'dtype' of {OUTPUT_VIEW} of {name} is {dtype}, its elements are {own}")
    shape = _numbers(name, view, "shape")
    if shape != list(sizes_of(value.type)):
        raise VerifyException(f"'shape' of {OUTPUT_VIEW} of {name} is {shape}, its own is {list(sizes_of(value.type))}")
    steps = _numbers(name, view, "strides") if "strides" in view.data else [0] * len(shape)
    if len(steps) != len(shape_of(value.type)):
        raise VerifyException(f"'strides' of {OUTPUT_VIEW} of {name} has {len(steps)} entries, its shape {len(shape)}")
    _number(name, "offset", view.data["offset"])
    _verify_storage(name, value, argument, arguments)


def _numbers(name: str, view: DictionaryAttr, field: str) -> list[int | str]:
    entries = view.data[field]
    if not isinstance(entries, ArrayAttr):
        raise VerifyException(f"{field!r} of {OUTPUT_VIEW} of {name} is {entries}, it takes a list")
    return [_number(name, field, entry) for entry in cast(ArrayAttr[Attribute], entries).data]


def _number(name: str, field: str, entry: Attribute) -> int | str:
    if isinstance(entry, StringAttr):
        verify_size(entry.data)
        return entry.data
    if isinstance(entry, IntegerAttr) and (number := cast(IntegerAttr, entry).value.data) >= 0:
        return number
    raise VerifyException(f"{field!r} of {OUTPUT_VIEW} of {name} holds {entry}, it takes sizes in elements")


def verify_pure(block: Block) -> None:
    """A pure function has tensors and numbers only."""
    for argument in block.args:
        if isinstance(argument.type, BufferType):
            raise VerifyException(f"{value_text(argument)} is a buffer, a pure function takes tensors")
    for op in block.ops:
        for index, operand in enumerate(op.operands):
            if isinstance(operand.type, BufferType):
                what = operand_text(op, index)
                raise OperationVerifyError(op, f"{operation_text(op)} takes the buffer {what} in a pure function")
        for index, result in enumerate(op.results):
            if isinstance(result.type, BufferType):
                what = result_text(op, index)
                raise OperationVerifyError(op, f"{operation_text(op)} gives the buffer {what} in a pure function")


def output_attributes(results: Attributes, terminator: Operation) -> Iterator[tuple[int, Mapping[str, Attribute]]]:
    """Positions of the outputs that are operands, and what is said of each."""
    for position, index in enumerate(output_items(terminator)):
        if index is not None:
            yield position, results[index]
