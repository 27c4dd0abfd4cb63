"""Operations that run regions or functions, which may pause for other processes: `if`, `case`, `while`, `func.call`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import func
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.frame import Frame, Stepper, Steps
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.dialects import stablehlo as hlo


def _if(frame: Frame, op: hlo.IfOp, values: Sequence[Array]) -> Steps:
    region = op.true_branch if values[0] else op.false_branch
    return (yield from frame.run(region.block, ()))


def _case(frame: Frame, op: hlo.CaseOp, values: Sequence[Array]) -> Steps:
    """The branch of that number; the last one for numbers that have none."""
    number = int(values[0])
    region = op.branches[number if 0 <= number < len(op.branches) else -1]
    return (yield from frame.run(region.block, ()))


def _while(frame: Frame, op: hlo.WhileOp, values: Sequence[Array]) -> Steps:
    while True:
        (holds,) = yield from frame.run(op.cond.block, values)
        if not holds:
            return values
        values = yield from frame.run(op.body.block, values)


def _call(frame: Frame, op: func.CallOp, values: Sequence[Array]) -> Steps:
    return (yield from frame.call(frame.program.functions[op.callee.string_value()], values))


CONTROL_FLOW: Mapping[type[Operation], Stepper] = {
    func.CallOp: _call,
    hlo.CaseOp: _case,
    hlo.IfOp: _if,
    hlo.WhileOp: _while,
}
"""How each operation runs."""
