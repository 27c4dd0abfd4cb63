"""Calls of ops on plain tensors, without a detour through torch's dispatcher.

A call can go straight to the chosen implementation where nothing watches: no tracer, mode, transform or tape, and only
ordinary tensors. Which implementation that is depends on the priority list and on what `supports_args` may look at,
which is everything about tensors but their contents; so the answer is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from vllm_ir.frontends.ops.priority import wants_batch_invariance
from vllm_ir.frontends.ops.torch_internals import differentiates_forward, is_watched

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.impl import IrOpImpl
    from vllm_ir.frontends.ops.op import IrOp

_PLAIN_TENSORS = frozenset((Tensor, torch.nn.Parameter))
_PLAIN_VALUES = frozenset((int, float, bool, str, type(None), torch.dtype))
_LIMIT = 512
"""So many signatures of arguments are kept for each op; then they are collected anew."""


def runs_directly(args: Sequence[object]) -> bool:
    """Whether a call with these arguments has the same effect without torch's dispatcher."""
    if is_watched():
        return False
    if differentiates_forward():
        return False
    recording = torch.is_grad_enabled()
    for arg in args:
        kind = type(arg)
        if kind in _PLAIN_TENSORS:
            tensor = cast(Tensor, arg)
            if tensor.is_meta or tensor.layout is not torch.strided or (recording and tensor.requires_grad):
                return False
        elif kind not in _PLAIN_VALUES:
            return False
    return True


class Choices:
    """The implementation of one op for each kind of arguments that it was called with."""

    def __init__(self, op: IrOp) -> None:
        """Start without any."""
        self._op = op
        self._known: dict[object, IrOpImpl] = {}

    def of(self, args: Sequence[object]) -> IrOpImpl:
        """The implementation for plain arguments; errors are those of `IrOp.select`."""
        key = (self._op.named_priority(), wants_batch_invariance(), *map(_metadata, args))
        impl = self._known.get(key)
        if impl is None:
            impl = self._op.select(args)[0]
            if len(self._known) >= _LIMIT:
                self._known.clear()
            self._known[key] = impl
        return impl

    def clear(self) -> None:
        """Forget all, because an implementation was added or removed."""
        self._known.clear()


def _metadata(arg: object) -> object:
    if isinstance(arg, Tensor):
        return (arg.shape, arg.stride(), arg.dtype, arg.device)
    return (type(arg), arg)
