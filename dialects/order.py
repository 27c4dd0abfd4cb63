"""Values are used behind the operation that gives them. xDSL does not check it."""

from __future__ import annotations

from xdsl.ir import Block, Operation, OpResult, SSAValue

from vllm_ir.dialects.messages import OperationVerifyError, operand_text, operation_text


def verify_order(function: Operation) -> None:
    """In a function, each operand is a value of a block around its user, given in front of it.

    Regions of more than one block are left to the operations that have them.

    Raises:
        OperationVerifyError: an operand is used before it is there, or comes from elsewhere.
    """
    for region in function.regions:
        if len(region.blocks) == 1:
            _verify_block(region.block, set())


def _verify_block(block: Block, known: set[SSAValue]) -> None:
    known.update(block.args)
    for op in block.ops:
        for index, operand in enumerate(op.operands):
            if operand not in known:
                raise OperationVerifyError(op, _message(op, index))
        inner = [] if not op.regions else [region for region in op.regions if len(region.blocks) == 1]
        for region in inner:
            _verify_block(region.block, set(known))
        known.update(op.results)


def _message(op: Operation, index: int) -> str:
    operand = op.operands[index]
    name = f"{operation_text(op)} uses {operand_text(op, index)}"
    if isinstance(operand, OpResult) and operand.op.parent is op.parent:
        return f"{name} before it is defined"
    return f"{name}, which is a value of another function"
