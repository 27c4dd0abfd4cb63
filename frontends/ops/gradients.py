"""Gradients of ops, from their native definitions.

A call that autograd records runs the chosen implementation, keeps its arguments, and in the backward pass runs the
native definition again and differentiates that. It holds for every implementation, since all compute the same function;
it can be differentiated again; and tracers see one node in the forward graph.

Forward-mode differentiation and the transforms of `torch.func` do not take such functions: there, a call is the native
definition itself, op by op.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor
from torch._ops import OpOverload

from vllm_ir.frontends.ops.memory import tensors_in
from vllm_ir.frontends.ops.torch_internals import (
    DispatchKeySet,
    apply_function,
    has_tangent,
    in_function_transform,
    redispatch_below_autograd,
)

Native = Callable[..., tuple[Tensor, ...]]


def differentiable(
    native: Native, run: OpOverload[..., object], recorded: OpOverload[..., object]
) -> Callable[..., object]:
    """An autograd kernel for an overload.

    Args:
        native: the op's definition, which gives a tuple.
        run: the overload to go on with where nothing is differentiated.
        recorded: the overload to run in a call that is recorded for a backward pass.
    """

    def kernel(keyset: DispatchKeySet, *args: object) -> object:
        tensors = list(tensors_in(args))
        backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        if any(map(has_tangent, tensors)) or (backward and in_function_transform()):
            # Storages cannot be compared here, so every result gets its own.
            results = tuple(result.clone() for result in native(*args))
            return results[0] if len(results) == 1 else results
        if backward:
            return apply_function(_Recorded, _Call(native, recorded, keyset, tuple(map(_template, args))), *tensors)
        return redispatch_below_autograd(run, keyset, *args)

    return kernel


class _Slot:
    """Stands for a tensor in the arguments of a call."""


def _template(arg: object) -> object:
    """An argument with its tensors replaced by slots."""
    if isinstance(arg, list | tuple):
        return [_template(item) for item in cast("Sequence[object]", arg)]
    return _Slot() if isinstance(arg, Tensor) else arg


def _filled(template: object, tensors: Iterator[Tensor]) -> object:
    """The inverse of `_template`: takes the next of `tensors` for each slot."""
    if isinstance(template, list):
        return [_filled(item, tensors) for item in cast("list[object]", template)]
    return next(tensors) if isinstance(template, _Slot) else template


@dataclass(frozen=True)
class _Call:
    """A recorded call, without its tensors: autograd keeps those, and notices if they are overwritten."""

    native: Native
    torch_op: OpOverload[..., object]
    keyset: DispatchKeySet
    templates: tuple[object, ...]

    def args(self, tensors: Sequence[Tensor]) -> list[object]:
        remaining = iter(tensors)
        return [_filled(template, remaining) for template in self.templates]


class _Context(Protocol):
    """The part of autograd's context that is used here; torch leaves it untyped."""

    saved_tensors: tuple[Tensor, ...]
    call: _Call

    def save_for_backward(self, *tensors: Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


class _Recorded(torch.autograd.Function):
    """`apply(call, *tensors)`: the results of a call, differentiable in `tensors`."""

    @staticmethod
    def forward(ctx: _Context, call: _Call, *tensors: Tensor) -> object:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return redispatch_below_autograd(call.torch_op, call.keyset, *call.args(tensors))

    @staticmethod
    def backward(ctx: _Context, *output_gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases, so that differentiation stops here and does not run on through what produced the arguments.
            inputs = [tensor.view_as(tensor) if tensor.requires_grad else tensor for tensor in ctx.saved_tensors]
            results = ctx.call.native(*ctx.call.args(inputs))
        pairs = [(r, g) for r, g in zip(results, output_gradients, strict=True) if r.requires_grad and g is not None]
        found = torch.autograd.grad(
            [result for result, _ in pairs],
            [tensor for tensor in inputs if tensor.requires_grad],
            [gradient for _, gradient in pairs],
            create_graph=again,
            allow_unused=True,
        )
        gradients = iter(found)
        return (None, *(next(gradients) if tensor.requires_grad else None for tensor in inputs))
