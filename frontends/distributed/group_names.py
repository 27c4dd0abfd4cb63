"""Which operations are collectives, and which group they name. Needs no torch.distributed, which may not be there.

A group is the argument `group_name`: of torch's functional collectives, of registered ops, and of their kernels.
"""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload

NAMESPACE = "_c10d_functional"
"""Begins the names of torch's namespaces of collectives. Their operators are collectives, and the wait for one."""
_GROUP_NAME = "group_name"
_NAMESPACES = (NAMESPACE, "vllm_ir")


def is_collective(op: Operation) -> bool:
    """Whether other ranks take part in an operation: a collective, the wait for one, or an op that has one in it."""
    if isinstance(op, CallOp):
        return op.target.startswith(NAMESPACE) or group_of(op) is not None
    return isinstance(op.properties.get(_GROUP_NAME), StringAttr)


def group_position(overload: Overload) -> int | None:
    """Which argument of a collective is its group; None for all other operators."""
    if not overload.namespace.startswith(_NAMESPACES):
        return None
    names = [argument.name for argument in op_info(overload).arguments]
    return names.index(_GROUP_NAME) if _GROUP_NAME in names else None


def group_of(op: Operation) -> str | None:
    """The name of the group that a collective is about, a call of torch's or an op's; None for anything else."""
    if isinstance(op, CallOp):
        target = resolve(op.target) if op.target.startswith(_NAMESPACES) else None
        position = group_position(target) if is_overload(target) else None
        name = None if position is None else op.arguments()[position]
    else:
        name = op.properties.get(_GROUP_NAME)
    return name.data if isinstance(name, StringAttr) else None


__all__ = ["NAMESPACE", "group_of", "group_position", "is_collective"]
