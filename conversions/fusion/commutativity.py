"""Whether an operator gives the same bits when its two tensors change places, found out by asking it.

PyTorch's schemas do not say so. An operator that gives the same for all pairs of a sample of special and random values,
in a floating and an integer dtype, is taken for commutative; which of two NaNs it passes on does not count.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.ops import ops

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, 2.5, -7.25, 1e-3, 1e30, float("inf"), float("-inf"), float("nan"))


@cache
def is_commutative(key: str) -> bool:
    """Whether the operator of that name, called with two tensors and defaults, takes them in any order."""
    name = key.removeprefix("vllm_ir.")
    if name != key and name in ops:
        return False  # an op of ours may be anything but an elementwise operator
    target = resolve(key) if "." in key and not key.startswith(("python.", "higher_order.")) else None
    if target is None or not is_overload(target):
        return False
    arguments = op_info(target).arguments
    if len(arguments) < 2 or any(not a.has_default for a in arguments[2:]) or op_info(target).writes:
        return False
    floats = torch.cat([torch.tensor(_SPECIAL), torch.linspace(-3.1, 2.7, 13)])
    samples = (floats, torch.arange(-5, 8))
    answers = [_same_swapped(target, *torch.meshgrid(sample, sample, indexing="ij")) for sample in samples]
    return all(answer is not False for answer in answers) and True in answers


def _same_swapped(target: object, one: Tensor, other: Tensor) -> bool | None:
    """None if the operator does not take such tensors."""
    if not callable(target):
        return None
    try:
        there, back = target(one, other), target(other, one)
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return None
    if not isinstance(there, Tensor) or not isinstance(back, Tensor) or there.dtype != back.dtype:
        return False
    if there.shape != one.shape:
        return False
    signs = torch.signbit(there).eq(torch.signbit(back)) if there.is_floating_point() else torch.tensor(True)
    equal = there.eq(back) & signs
    nans = there.isnan() & back.isnan() if there.is_floating_point() else torch.tensor(False)
    return bool((equal | nans).all())
