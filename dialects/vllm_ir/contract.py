"""The memory contract of a function, and the rules that bind its body to it.

Argument attributes: `vllm_ir.mutated` (the buffer's contents change), `vllm_ir.donated` (the contents after the call
are undefined), `vllm_ir.storage` (arguments with the same number share memory), `vllm_ir.resource` (the argument is
the module attribute of that name), `vllm_ir.symbol` (the argument is the value of that size symbol), `vllm_ir.window`
(the window that the caller's tensor has after the call, if its shape or strides change).
Result attribute: `vllm_ir.aliases` (the result is a window onto the storage of that argument). In a function that
`alias-outputs` has marked it says more, see `outputs.py`: that the result is that argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import IntegerAttr, IntegerType, StringAttr, TensorType, UnitAttr
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.traits import IsTerminator
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import OperationVerifyError, operand_text, operation_text, result_text, value_text
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.expressions import verify_size
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects, donated_indices
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of, verify_tensor_type

MUTATED = "vllm_ir.mutated"
DONATED = "vllm_ir.donated"
STORAGE = "vllm_ir.storage"
RESOURCE = "vllm_ir.resource"
SYMBOL = "vllm_ir.symbol"
WINDOW = "vllm_ir.window"
ALIASES = "vllm_ir.aliases"
OUTPUT_VIEW = "vllm_ir.output_view"

_PREFIX = "vllm_ir."
_ARGUMENT_ATTRIBUTES: Mapping[str, tuple[type[Attribute], str]] = {
    MUTATED: (UnitAttr, "no value"),
    DONATED: (UnitAttr, "no value"),
    STORAGE: (IntegerAttr, "an integer"),
    RESOURCE: (StringAttr, "a string"),
    SYMBOL: (StringAttr, "a string"),
    WINDOW: (BufferType, "a buffer type"),
}
_RESULT_ATTRIBUTES: Mapping[str, tuple[type[Attribute], str]] = {ALIASES: (IntegerAttr, "an integer")}

Attributes = Sequence[Mapping[str, Attribute]]


def root_of(buffer: SSAValue) -> SSAValue:
    """The argument or `alloc` whose storage `buffer` is a window onto."""
    while isinstance(buffer, OpResult):
        op = buffer.op
        if isinstance(op, ViewOp):
            buffer = op.base
        elif isinstance(op, CallOp) and op.returns is not None:
            buffer = op.operands[op.return_indices[buffer.index]]
        else:
            break
    return buffer


def written_buffers(op: Operation) -> Iterator[SSAValue]:
    """Buffers that `op` writes."""
    if isinstance(op, WriteOp):
        yield op.buffer
    elif isinstance(op, CallOp):
        for index in op.write_indices:
            yield op.operands[index]


def verify_types(block: Block) -> None:
    """Tensors in the body have element types and layouts of PyTorch, and no operation holds others."""
    seen: set[int] = set()  # by identity: types are shared, and comparing them costs more than checking them
    for argument in block.args:
        _verify_type(argument, argument.owner.parent_op(), seen)
    for op in block.ops:
        if op.regions:
            raise OperationVerifyError(op, f"{operation_text(op)} has a region; branches are functions of their own")
        if not (isinstance(op, AllocOp | ViewOp | CallOp) or op.has_trait(OperandEffects)):
            for index, result in enumerate(op.results):
                if isinstance(result.type, BufferType):
                    raise OperationVerifyError(
                        op,
                        f"{operation_text(op)} gives the buffer {result_text(op, index)}, but "
                        "does not say in which storage",
                    )
        for result in op.results:
            _verify_type(result, op, seen)


def _verify_type(value: SSAValue, op: Operation | None, seen: set[int]) -> None:
    if id(value.type) in seen:
        return
    seen.add(id(value.type))
    try:
        verify_tensor_type(value.type)
    except VerifyException as error:
        message = f"{value_text(value)} of type {value.type}: {error}"
        raise (VerifyException(message) if op is None else OperationVerifyError(op, message)) from None


def verify_signature(block: Block, attributes: Attributes, *, pure: bool = False) -> None:
    """Argument attributes are known, of the right kind, and fit the arguments' types.

    In a pure function tensors stand for buffers, and say as much of the caller's memory.
    """
    devices: dict[Attribute, tuple[str, str]] = {}
    for argument, given in zip(block.args, attributes, strict=True):
        name, type_text, device = value_text(argument), str(argument.type), device_of(argument.type)
        is_buffer, is_integer = isinstance(argument.type, BufferType), isinstance(argument.type, IntegerType)
        verify_attribute_kinds(name, given, _ARGUMENT_ATTRIBUTES)
        stands_for_buffer = pure and isinstance(argument.type, TensorType)
        for attribute in (MUTATED, STORAGE, WINDOW):
            if attribute in given and not is_buffer and not (stands_for_buffer and attribute != MUTATED):
                raise VerifyException(f"{name} is marked {attribute} but has type {type_text}, not a buffer")
        if (symbol := given.get(SYMBOL)) is not None:
            if not is_integer:
                raise VerifyException(f"{name} is marked {SYMBOL} but has type {type_text}, not an integer")
            verify_size(cast(StringAttr, symbol).data)
        if (window := given.get(WINDOW)) is not None and device_of(window) != device:
            raise VerifyException(f"{WINDOW} of {name} is on {device_of(window)}, not on {device}")
        if (storage := given.get(STORAGE)) is not None:
            other, other_device = devices.setdefault(storage, (name, device))
            if device != other_device:
                raise VerifyException(f"{name} on {device} shares storage with {other} on {other_device}")


def verify_attribute_kinds(
    what: str, given: Mapping[str, Attribute], known: Mapping[str, tuple[type[Attribute], str]]
) -> None:
    """Attributes of ours are among the known ones, and of their kinds."""
    for name, value in given.items():
        if name not in known:
            if name.startswith(_PREFIX):
                raise VerifyException(f"{what} has the unknown attribute {name}; known are {', '.join(known)}")
            continue
        kind, kind_text = known[name]
        if not isinstance(value, kind):
            raise VerifyException(f"{name} of {what} is {value}, it takes {kind_text}")


def verify_results(terminator: Operation, result_attributes: Attributes, argument_attributes: Attributes) -> None:
    """The stated aliases of the results are what the body returns, and no result is a donated argument's memory."""
    for index, value in enumerate(terminator.operands):
        name = f"result {index} ({value_text(value)})"
        attributes = result_attributes[index]
        verify_attribute_kinds(name, attributes, _RESULT_ATTRIBUTES)
        root = root_of(value) if isinstance(value.type, BufferType) else None
        actual = root.index if isinstance(root, BlockArgument) else None
        stated = attributes.get(ALIASES)
        number = stated.value.data if isinstance(stated, IntegerAttr) else None
        if actual != number:
            claim = f"does not state {ALIASES}" if number is None else f"states {ALIASES} = {number}"
            truth = "no argument" if root is None or actual is None else f"argument {actual} ({value_text(root)})"
            raise VerifyException(f"{name} {claim}, but its storage is that of {truth}")
        if actual is not None and DONATED in argument_attributes[actual]:
            raise VerifyException(f"{name} is memory of argument {actual}, which is donated")


def verify_writes(block: Block, attributes: Attributes) -> None:
    """Arguments that the body writes are marked as mutated, or as donated."""
    for op in block.ops:
        for buffer in written_buffers(op):
            root = root_of(buffer)
            if isinstance(root, BlockArgument) and not {MUTATED, DONATED} & attributes[root.index].keys():
                raise OperationVerifyError(
                    op,
                    f"{operation_text(op)} writes argument {root.index} ({value_text(root)}), "
                    f"which is not marked {MUTATED} or {DONATED}",
                )


def verify_donations(block: Block) -> None:
    """At tensor level, a donated value has no use behind the op that takes it, and is no result.

    At buffer level other windows onto the donated storage matter as well: that is left to alias analysis.
    """
    position: dict[Operation, int] = {}
    for op in block.ops:
        for index in donated_indices(op):
            position = position or {op: number for number, op in enumerate(block.ops)}
            value = op.operands[index]
            for use in value.uses:
                other = use.operation
                if (other is op and use.index == index) or position.get(other, -1) < position[op]:
                    continue
                name = operand_text(op, index)
                if other is op:
                    raise OperationVerifyError(op, f"{name} is donated to {op.name} and another operand of it")
                how = "returned" if other.has_trait(IsTerminator) else f"used later by {operation_text(other)}"
                raise OperationVerifyError(other, f"{name} is donated to {op.name} and {how}")


def verify_functional(block: Block) -> None:
    """At tensor level: no call touches buffers, and each window is written at most once, behind all computation.

    That is one write of each argument, unless views by stride (`as_strided`) reach memory that it does not hold.
    """
    written: dict[SSAValue, list[SSAValue]] = {}
    for op in block.ops:
        if isinstance(op, WriteOp):
            root = root_of(op.buffer)
            name = value_text(op.buffer)
            if not isinstance(root, BlockArgument):
                raise OperationVerifyError(op, f"{name} is written in a functional function but is no argument")
            windows = written.setdefault(root, [])
            if any(window.type == op.buffer.type for window in windows):
                raise OperationVerifyError(op, f"{value_text(root)} is written twice in a functional function")
            windows.append(op.buffer)
        elif isinstance(op, ReadOp):
            root = root_of(op.buffer)
            if root in written:
                raise OperationVerifyError(
                    op, f"{value_text(op.buffer)} is read behind the write to {value_text(root)}"
                )
            if written:
                _refuse_late(op, written)
        elif not isinstance(op, ViewOp | AllocOp) and not op.has_trait(IsTerminator):
            _verify_pure_values(op)
            if written:
                _refuse_late(op, written)


def _refuse_late(op: Operation, written: Iterable[SSAValue]) -> None:
    first = value_text(next(iter(written)))
    what = f" {value_text(op.results[0])}" if op.results else ""
    raise OperationVerifyError(op, f"{operation_text(op)} computes{what} behind the final write to {first}")


def _verify_pure_values(op: Operation) -> None:
    if isinstance(op, CallOp) and op.write_indices:
        name = operand_text(op, op.write_indices[0])
        raise OperationVerifyError(op, f"{operation_text(op)} writes {name} in a functional function")
    for index, operand in enumerate(op.operands):
        if isinstance(operand.type, BufferType):
            raise OperationVerifyError(
                op, f"{operation_text(op)} takes the buffer {operand_text(op, index)} in a functional function"
            )
