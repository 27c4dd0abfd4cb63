"""How verifier messages name operations and values."""

from __future__ import annotations

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException


class OperationVerifyError(VerifyException):
    """A rule of the enclosing function that is broken at `operation`, which may lie deep inside it."""

    def __init__(self, operation: Operation, message: str) -> None:
        """`message` is one line that names the values concerned."""
        super().__init__(message)
        self.operation = operation


def value_text(value: SSAValue) -> str:
    """`%name` if the value has a name, else where it comes from: `argument 2`, `result 0 of vllm_ir.view`."""
    if value.name_hint is not None:
        return f"%{value.name_hint}"
    if isinstance(value, BlockArgument):
        return f"argument {value.index}"
    if isinstance(value, OpResult):
        return f"result {value.index} of {operation_text(value.op)}"
    return "a value"


def operand_text(op: Operation, index: int) -> str:
    """`%name` if the operand has a name, else `operand 2`; also for numbers of operands that `op` does not have."""
    hint = op.operands[index].name_hint if 0 <= index < len(op.operands) else None
    return f"operand {index}" if hint is None else f"%{hint}"


def result_text(op: Operation, index: int) -> str:
    """`%name` if the result has a name, else `result 2`."""
    hint = op.results[index].name_hint
    return f"result {index}" if hint is None else f"%{hint}"


def operation_text(op: Operation) -> str:
    """Name of the operation, with the PyTorch operator that it calls, if it calls one."""
    target = getattr(op, "target", None)
    return f"{op.name} @{target}" if isinstance(target, str) else op.name
