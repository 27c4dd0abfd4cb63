"""Running one `vllm_ir.func` on real tensors.

A buffer is a tensor that shares the memory of its storage; what is written to it shows in every other window. A value
is a tensor that nobody writes: it is a copy wherever it would share memory with a buffer, and it is laid out as its
type states, so that what an operator does with the strides of its operands is what eager mode does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import InterpretationError, VerifyException

from vllm_ir.backends.interpreter.calls import Call, flat_results
from vllm_ir.backends.interpreter.layout import fresh, laid_out, stated_strides
from vllm_ir.backends.interpreter.poison import Poison
from vllm_ir.backends.interpreter.sizes import Sizes
from vllm_ir.dialects.messages import operand_text, operation_text, value_text
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.torch.constant import ConstantOp
from vllm_ir.dialects.vllm_ir.function import FuncOp, ReturnOp
from vllm_ir.dialects.vllm_ir.high_level import donated_indices
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, RelayoutOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, sizes_of
from vllm_ir.frontends.fx.arithmetic import INTEGER_FUNCTIONS
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.types import is_shaped, known_dtype
from vllm_ir.frontends.fx.values import decode, number
from vllm_ir.frontends.ops.dialect import call_arguments
from vllm_ir.frontends.ops.registry import ops

Program = Callable[..., object]


class Frame:
    """One call of a function: what its values are so far."""

    def __init__(
        self, function: FuncOp, functions: Mapping[str, Program], poison: Poison, calls: Callable[[Call], object]
    ) -> None:
        """A frame for `function`, which may call `functions`; `calls` runs the calls of operators."""
        self.function = function
        self.sizes = Sizes()
        self.values: dict[SSAValue, object] = {}
        self._functions = functions
        self._poison = poison
        self._run_call = calls
        self._donated: dict[SSAValue, Operation] = {}

    def run(self) -> object:
        """Run all operations on the arguments, which are in `values`; gives what the function returns."""
        for op in self.function.block.ops:
            if isinstance(op, ReturnOp):
                return decode(op.structure, [self._returned(value) for value in op.operands], str)
            self._run(op)
        raise VerifyException(f"@{self.function.sym_name.data} does not return")

    def _run(self, op: Operation) -> None:
        match op:
            case CallOp() if op.updates is not None:
                self._updates(op)
            case CallOp():
                self._call(op)
            case ViewOp():
                self._view(op)
            case ReadOp():
                self._bind(op, op.result, self._memory(op, 0))
            case WriteOp():
                buffer = self._buffer(op.buffer)
                buffer.copy_(self._tensor(op, 0))
                self._poison.restore(buffer)
            case AllocOp():
                self._alloc(op)
            case RelayoutOp():
                self._bind(op, op.result, self._tensor(op, 0))
            case ConstantOp():
                self._bind(op, op.result, constant(op))
            case arith.ConstantOp():
                self.values[op.result] = number(op.value)
            case _ if (function := INTEGER_FUNCTIONS.get(type(op))) is not None:
                self.values[op.results[0]] = function(*(self.values[operand] for operand in op.operands))
            case _ if op.name.startswith("vllm_ir."):
                self._high_level(op)
            case _:
                raise InterpretationError(f"{operation_text(op)} has no meaning here")

    # Operands

    def _operand(self, op: Operation, index: int) -> object:
        """What an operand is, for an operation that does not look into its memory."""
        value = op.operands[index]
        if (taker := self._donated.get(value)) is not None:
            raise InterpretationError(
                f"{operation_text(op)} uses {operand_text(op, index)}, which was donated to {operation_text(taker)}"
            )
        return self.values[value]

    def _tensor(self, op: Operation, index: int) -> Tensor:
        found = self._operand(op, index)
        if not isinstance(found, Tensor):
            raise InterpretationError(f"{operation_text(op)}: {operand_text(op, index)} is no tensor but {found!r}")
        return found

    def _buffer(self, value: SSAValue) -> Tensor:
        found = self.values[value]
        if not isinstance(found, Tensor):
            raise InterpretationError(f"{value_text(value)} is no buffer but {found!r}")
        return found

    def _memory(self, op: Operation, index: int) -> Tensor:
        """A buffer whose contents are looked at."""
        buffer = self._tensor(op, index)
        if self._poison.spoiled(buffer):
            raise InterpretationError(
                f"{operation_text(op)} reads {operand_text(op, index)}, whose memory was donated before"
            )
        return buffer

    # Results

    def _bind(self, op: Operation, result: SSAValue, value: object) -> None:
        """Make `value` what a result is: checked against its type, values in memory of their own."""
        kind = result.type
        if not is_shaped(kind):
            self.values[result] = value
            return
        if not isinstance(value, Tensor):
            raise InterpretationError(f"{operation_text(op)} gives {value!r} for {value_text(result)} of type {kind}")
        self._learn(op, result, value)
        strides = stated_strides(kind, value.shape, self.sizes)
        if isinstance(kind, BufferType):
            self._check_window(op, result, value, strides)
        elif _shares_memory(value, [self.values[operand] for operand in op.operands if _is_buffer(operand)]):
            value = fresh(value, strides)
        elif strides is not None and value.stride() != strides:
            value = laid_out(value, strides)
        self.values[result] = value

    def _learn(self, op: Operation, result: SSAValue, value: Tensor) -> None:
        """Check dtype and sizes, and learn the symbols among the sizes."""
        kind = result.type
        dtype = known_dtype(kind.element_type) if is_shaped(kind) else None
        stated = sizes_of(kind)
        if value.dtype != dtype or value.dim() != len(stated):
            raise InterpretationError(f"{operation_text(op)} gives {described(value)} for {value_text(result)}: {kind}")
        for size, actual in zip(stated, value.shape, strict=True):
            self.sizes.bind(size, actual)
        for size, actual in zip(stated, value.shape, strict=True):
            if (wanted := self.sizes.value(size)) is not None and wanted != actual:
                raise InterpretationError(
                    f"{operation_text(op)} gives {described(value)} for {value_text(result)}: {kind}"
                )

    def _check_window(self, op: Operation, result: SSAValue, value: Tensor, strides: Sequence[int] | None) -> None:
        if strides is None or value.numel() == 0:
            return
        free = [size == 1 for size in value.shape]
        if any(not free_ and step != wanted for free_, step, wanted in zip(free, value.stride(), strides, strict=True)):
            raise InterpretationError(
                f"{operation_text(op)} gives strides {list(value.stride())} for {value_text(result)}: {result.type}"
            )

    # Operations

    def _call(self, op: CallOp) -> None:
        operands = [self._operand(op, index) for index in range(len(op.operands))]
        for index in op.read_indices:
            self._memory(op, index)
        results = flat_results(self._run_call(self._prepared(op, operands)))
        for index in op.write_indices:
            self._poison.restore(self._buffer(op.operands[index]))
        self._bind_all(op, op.results, results)

    def _prepared(self, op: CallOp | ViewOp, operands: Sequence[object]) -> Call:
        args = tuple(decode(tree, operands, self._target) for tree in op.args.data)
        kwargs = {
            name: decode(tree, operands, self._target) for name, tree in (op.kwargs.data.items() if op.kwargs else ())
        }
        return Call(op, self._target(op.target), args, kwargs)

    def _target(self, name: str) -> object:
        return self._functions.get(name) or resolve(name)

    def _bind_all(self, op: Operation, results: Sequence[SSAValue], values: Sequence[object]) -> None:
        if len(results) != len(values):
            values = [value for value in values if value is not None]  # what operators without results give
        if len(results) != len(values):
            raise InterpretationError(f"{operation_text(op)} gives {len(values)} results, the text has {len(results)}")
        for result, value in zip(results, values, strict=True):
            self._bind(op, result, value)

    def _updates(self, op: CallOp) -> None:
        """Call a writing operator on copies; what the copies are then are the new values."""
        operands = [self._operand(op, index) for index in range(len(op.operands))]
        written = op.update_indices
        for index in written:
            value = self._tensor(op, index)
            operands[index] = fresh(value, stated_strides(op.operands[index].type, value.shape, self.sizes))
        copies = [operands[index] for index in written]
        results = flat_results(self._run_call(self._prepared(op, operands)))
        own = len(op.results) - len(written)
        # What the operator returns of its operands is among the new values already.
        kept = [value for value in results if not _shares_memory(value, copies)]
        self._bind_all(op, op.results[:own], kept[:own] if own <= len(kept) else kept)
        self._bind_all(op, op.results[own:], copies)

    def _view(self, op: ViewOp) -> None:
        operands = [self._operand(op, index) for index in range(len(op.operands))]
        base = self._buffer(op.base)
        results = flat_results(self._run_call(self._prepared(op, operands)))
        self._bind_all(op, op.results, results)
        for result in op.results:
            view = self._buffer(result)
            if not _shares_memory(view, [base]) and view.numel():
                raise InterpretationError(f"{operation_text(op)} gives a copy of %{op.base.name_hint}, not a view")
            self._check_offset(op, base, result, view)

    def _check_offset(self, op: ViewOp, base: Tensor, result: SSAValue, view: Tensor) -> None:
        """Where a view starts: types count from the start of the storage, the caller's may lie anywhere in theirs."""
        if not isinstance(result.type, BufferType) or not isinstance(op.base.type, BufferType):
            return
        if not view.numel() or not base.numel():
            return  # where PyTorch lets a window without elements begin depends on who is asked
        start, end = self.sizes.value(offset_of(op.base.type)), self.sizes.value(offset_of(result.type))
        if start is None or end is None:
            return
        stated = end * view.element_size() - start * base.element_size()
        # `data_ptr` is 0 for a window without elements, also behind the start of its storage.
        moved = view.storage_offset() * view.element_size() - base.storage_offset() * base.element_size()
        if moved != stated:
            raise InterpretationError(
                f"{operation_text(op)} moves the window by {moved} bytes, the types of %{op.base.name_hint} and "
                f"{value_text(result)} by {stated}"
            )

    def _alloc(self, op: AllocOp) -> None:
        value = self._tensor(op, 0)
        self._learn(op, op.buffer, value)
        self.values[op.buffer] = fresh(value, stated_strides(op.buffer.type, value.shape, self.sizes))

    def _high_level(self, op: Operation) -> None:
        """Run the definition of one of our operations, and take away what was donated to it."""
        operands = [
            self._memory(op, index) if _is_buffer(operand) else self._operand(op, index)
            for index, operand in enumerate(op.operands)
        ]
        ir_op = ops[op.name.removeprefix("vllm_ir.")]
        args = call_arguments(op, ir_op, operands)
        results = flat_results(self._run_call(Call(op, ir_op.torch_op, args, {})))
        self._bind_all(op, op.results, results)
        for index in donated_indices(op):
            value = op.operands[index]
            if _is_buffer(value):
                self._poison.spoil(self._buffer(value))
            else:
                self._donated[value] = op

    def _returned(self, value: SSAValue) -> object:
        found = self.values[value]
        if not isinstance(found, Tensor) or _is_buffer(value):
            return found
        return fresh(found, stated_strides(value.type, found.shape, self.sizes))


def constant(op: ConstantOp) -> Tensor:
    """The tensor of a constant."""
    dtype = known_dtype(op.result.type.element_type)
    data = bytearray(bytes.fromhex(op.data.data))
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(op.result.type.get_shape())


def described(value: Tensor) -> str:
    """Dtype and shape, for messages."""
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _is_buffer(value: SSAValue) -> bool:
    return isinstance(value.type, BufferType)


def _shares_memory(value: object, others: Sequence[object]) -> bool:
    """Whether a tensor is in the storage of one of the others."""
    if not isinstance(value, Tensor) or value.untyped_storage().nbytes() == 0:
        return False
    address = value.untyped_storage().data_ptr()
    return any(isinstance(other, Tensor) and other.untyped_storage().data_ptr() == address for other in others)
