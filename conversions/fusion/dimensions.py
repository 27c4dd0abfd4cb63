"""Dimensions that are the same in other words: counted from the first, or from the last."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation

from vllm_ir.conversions.fusion.pattern import items_of, tensors_of
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.types import shape_of
from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import is_shaped


def same_dimensions(argument: int | str, tree: Attribute, other: Attribute, op: Operation) -> bool:
    """Whether two attributes of an argument name the same dimensions of the operand.

    Schemas call such arguments `dim`, or `dim0` and so on. An operator that adds dimensions may count those of its
    result; of such nothing is known.

    Args:
        argument: the number of the argument, as `trees_of` counts.
        tree: the one attribute.
        other: the other.
        op: a call of the operator, on operands as they are with both.
    """
    tensors = tensors_of(op)
    if not isinstance(op, CallOp) or not isinstance(argument, int) or not tensors or len(op.results) != 1:
        return False
    before, after = tensors[0].type, op.results[0].type
    if not is_shaped(before) or not is_shaped(after) or not _name_of(op, argument).startswith("dim"):
        return False
    rank = len(shape_of(before))
    ours, theirs = _counted(tree, rank), _counted(other, rank)
    return len(shape_of(after)) <= rank and ours is not None and ours == theirs


def _name_of(op: CallOp, argument: int) -> str:
    target = resolve(op.target)
    names = [a.name for a in op_info(target).arguments] if target is not None and is_overload(target) else []
    return names[argument] if argument < len(op.args.data) <= len(names) else ""


def _counted(tree: Attribute, rank: int) -> list[int] | None:
    """Dimensions counted from the first; None if the attribute is none."""
    items = items_of(tree)
    found: list[int] = []
    for item in [tree] if items is None else items:
        if not isinstance(item, IntegerAttr) or not -rank <= item.value.data < rank:
            return None
        found.append(item.value.data % rank)
    return found
