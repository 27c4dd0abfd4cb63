"""Operands of one call that share memory: what eager refuses is refused."""

from __future__ import annotations

import torch
from xdsl.ir import SSAValue

from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.functionalize.storage import Storages
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.regions import extent, may_overlap, overlaps_itself
from vllm_ir.frontends.fx.schemas import OpInfo
from vllm_ir.frontends.fx.types import static_window


def check_operands(op: CallOp, info: OpInfo, storages: Storages) -> None:
    """Stop where a written operand overlaps itself, or another operand in a way that makes the result undefined."""
    for index in op.write_indices:
        written = op.operands[index]
        kind = written.type
        if not isinstance(kind, BufferType):
            continue
        if overlaps_itself(kind):
            fail(
                op,
                f"writes %{written.name_hint or index}, whose elements share memory ({kind}); "
                "the result would depend on the order of the writes: write to a clone",
            )
        for other_index, other in enumerate(op.operands):
            if other_index == index or not isinstance(other.type, BufferType):
                continue
            if storages.windows[other].root is storages.windows[written].root:
                _check_pair(op, info, written, other, other_index in op.write_indices)


def _check_pair(op: CallOp, info: OpInfo, written: SSAValue, other: SSAValue, both_written: bool) -> None:
    first, second = written.type, other.type
    if first == second and not both_written and info.overload.namespace in ("aten", "prims"):
        return
    if not isinstance(first, BufferType) or not isinstance(second, BufferType) or not may_overlap(first, second):
        return
    names = f"%{written.name_hint} ({first}) and %{other.name_hint} ({second})"
    if info.overload.namespace not in ("aten", "prims") or both_written:
        fail(
            op,
            f"writes {names.split(' and ')[0]}, which overlaps the operand {names.split(' and ')[1]}; "
            "what the operator sees would depend on its implementation: pass a clone",
        )
    if _eager_refuses(first, second):
        fail(op, f"some elements of {names} are the same memory and eager refuses the call; clone the source first")


def _eager_refuses(first: BufferType, second: BufferType) -> bool:
    """PyTorch's rule for partial overlap: both dense, in one storage, different windows with bytes in common.

    `assert_no_partial_overlap` in ATen/MemoryOverlap.cpp; memory with gaps is "too hard" and let through.
    """
    if static_window(first) is None or static_window(second) is None:
        return False
    dense = all(_is_dense(kind) for kind in (first, second))
    return dense and extent(first) != extent(second)


def _is_dense(kind: BufferType) -> bool:
    window = static_window(kind)
    if window is None:
        return False
    probe = torch.empty_strided(window[0], window[1], device="meta")
    return bool(torch._prims_common.is_non_overlapping_and_dense_or_false(probe))
