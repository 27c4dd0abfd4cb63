"""Donated activations: nobody may look at them afterwards, under any name."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.analysis.regions import may_overlap
from vllm_ir.conversions.errors import describe, fail, location_text
from vllm_ir.conversions.functionalize.storage import Donation, Window
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp


def donate(op: Operation, window: Window, value: SSAValue) -> None:
    """Record that `op` may overwrite `window`, whose value it takes."""
    window.root.donations.append(Donation(op, window.type, value))


def refuse_donated(op: Operation, window: Window, buffer: SSAValue) -> None:
    """Stop if `op` uses memory that was given away before."""
    for donation in window.root.donations:
        if donation.op is not op and may_overlap(donation.window, window.type):
            given = location_text(donation.op)
            fail(
                op,
                f"uses {alias_path(buffer)} after its memory was donated to {describe(donation.op)}"
                f"{' at ' + given if given else ''}; call the op without maybe_inplace, or donate a clone",
            )


def alias_path(buffer: SSAValue) -> str:
    """How a buffer comes from its storage: `%v = select(%x)`."""
    names: list[str] = []
    while True:
        owner = buffer.owner
        names.append(f"%{buffer.name_hint or '?'}")
        if isinstance(owner, ViewOp):
            names[-1] += f" ({owner.target.split('.')[1]} of"
            buffer = owner.base
        elif isinstance(owner, CallOp) and owner.returns is not None:
            names[-1] += f" (result of @{owner.target} on"
            index = next(index for index, result in enumerate(owner.results) if result is buffer)
            buffer = owner.operands[owner.returns.get_values()[index]]
        else:
            return " ".join(names) + ")" * (len(names) - 1)
