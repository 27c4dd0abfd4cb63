"""Functions that are values in front of an operation, and memory from it on: where a limit of rewrites ends the pass.

All memory stays where it was. What it would hold by then is written to it, so that what follows finds it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.donations import drop_invalid_donations
from vllm_ir.conversions.functionalize.storage import Root, Storages
from vllm_ir.dialects.vllm_ir.function import DONATED, MUTATED, FuncOp, ReturnOp, root_of
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.build import CallBuilder


def count_rewrites(function: FuncOp) -> int:
    """How many operations of a function the pass rewrites; its end counts, since it states what the caller sees."""
    return sum(
        isinstance(op, ReturnOp)
        or (
            not isinstance(op, AllocOp | ViewOp)
            and any(isinstance(operand.type, BufferType) for operand in op.operands)
        )
        for op in function.block.ops
    )


def leave_in_memory(function: FuncOp, storages: Storages, dead: Mapping[Operation, None], b: CallBuilder) -> None:
    """Give memory the values that it has by now, at the place where `b` builds; `dead` operations have happened."""
    _return_operands(storages)
    # The windows that memory is written through are used then, and stay.
    written = _write([root for root in storages.roots if root.is_argument and _is_needed(root)], b)
    _erase_unused(dead)
    written += _write([root for root in storages.roots if not root.is_argument and _is_needed(root)], b)
    drop_invalid_donations(function)
    _extend_signature(function, storages, written)
    function.update_type()


def _return_operands(storages: Storages) -> None:
    """Let results that are an operand's buffer be that one, since the calls that returned them are gone."""
    for result, operand in storages.aliases.items():
        while operand in storages.aliases:
            operand = storages.aliases[operand]
        result.replace_all_uses_with(operand)


def _erase_unused(dead: Iterable[Operation]) -> None:
    """Erase operations that have happened, but for the memory that is used from here on, and the windows onto it."""
    for op in reversed(list(dead)):
        if not isinstance(op, AllocOp | ViewOp) or all(result.first_use is None for result in op.results):
            op.detach()
            op.erase(safe_erase=False)


def _is_needed(root: Root) -> bool:
    """Whether memory that somebody can look at does not hold yet what it has to."""
    if not root.changed or root.given_away:
        return False
    return root.is_argument or root.buffer.first_use is not None


def _write(roots: Iterable[Root], b: CallBuilder) -> list[SSAValue]:
    """Write what memory holds by now; returns the buffers."""
    writes = [(root, *write) for root in roots for write in root.final_writes(b)]
    for _, value, buffer in writes:
        b.add(WriteOp.create(operands=[value, buffer]))
    return [buffer for root, _, written in writes for buffer in (written, root.buffer)]


def _extend_signature(function: FuncOp, storages: Storages, written: Iterable[SSAValue]) -> None:
    """Mark the arguments through which memory is written now, and those that were given away."""
    targets = set(map(root_of, written))
    given = {root.buffer for root in storages.roots if root.given_away}
    attributes = [function.argument_attributes(index) for index in range(len(function.block.args))]
    for argument, entry in zip(function.block.args, attributes, strict=True):
        if argument in targets:
            entry[MUTATED] = UnitAttr()
        if _root_buffer(argument, storages) in given:
            entry[DONATED] = UnitAttr()
    function.set_argument_attributes(attributes)


def _root_buffer(argument: SSAValue, storages: Storages) -> SSAValue | None:
    window = storages.windows.get(argument)
    return None if window is None else window.root.buffer
