"""Ops in torch: the overloads `torch.ops.vllm_ir.<op>.default` and `.maybe_inplace` with their kernels.

Every overload has one kernel for all devices, which dispatches by priority; a fake kernel, which runs the native
definition; and gradients, which come from the native definition too. Tracers therefore record one node per call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch._ops import OpOverload

from vllm_ir.frontends.ops.gradients import differentiable
from vllm_ir.frontends.ops.memory import fresh, tensors_in
from vllm_ir.frontends.ops.torch_internals import Kernel, define_overload, parse_schema, register_autograd_kernel

NAMESPACE = "vllm_ir"
TorchOp = OpOverload[..., object]
# FRAGMENT: other parts of the product define ops of this namespace as well. Definitions die with the library object.
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


@dataclass(frozen=True)
class Definition:
    """What torch is told about an op."""

    name: str
    schema: str
    """Parameters and results, as `torch.library.infer_schema` writes them."""
    native: Callable[..., object]
    functional: Kernel
    """Kernel of `default`: leaves its arguments as they are, gives results with storages of their own."""
    donating: Kernel | None
    """Kernel of `maybe_inplace`: may overwrite the activations. None: there is no such overload."""


def define(definition: Definition) -> tuple[TorchOp, TorchOp | None]:
    """Define an op's overloads in torch; returns `default` and, if there is one, `maybe_inplace`."""
    native = _native_results(definition)
    default = _overload(definition, "default", definition.functional)
    register_autograd_kernel(_LIBRARY, default, differentiable(native, run=default, recorded=default))
    if definition.donating is None:
        return default, None
    donating = _overload(definition, "maybe_inplace", definition.donating)
    # Backward needs the activations, so a call that is recorded cannot use the permission to overwrite them.
    register_autograd_kernel(_LIBRARY, donating, differentiable(native, run=donating, recorded=default))
    return default, donating


def _overload(definition: Definition, overload: str, kernel: Kernel) -> TorchOp:
    native = _native_results(definition)

    def fake(*args: object) -> Tensor | tuple[Tensor, ...]:
        return unpacked(fresh(native(*args), tensors_in(args)))

    name = definition.name if overload == "default" else f"{definition.name}.{overload}"
    define_overload(_LIBRARY, NAMESPACE, name, definition.schema, kernel, fake)
    packet = getattr(getattr(torch.ops, NAMESPACE), definition.name)
    return getattr(packet, overload)


def _native_results(definition: Definition) -> Callable[..., tuple[Tensor, ...]]:
    count = len(parse_schema(f"op{definition.schema}").returns)
    described = f"vllm_ir.{definition.name}: the native definition"
    return lambda *args: as_results(definition.native(*args), count, described)


def as_results(value: object, count: int, described: str) -> tuple[Tensor, ...]:
    """What a Python function gave back, as a tuple of tensors.

    Raises:
        TypeError: it is neither a tensor nor a tuple of them, or not `count`; the message begins with `described`.
    """
    items: list[object] = [value]
    if isinstance(value, tuple | list):
        items = [*cast("Sequence[object]", value)]
    results = tuple(item for item in items if isinstance(item, Tensor))
    if len(results) != len(items) or len(results) != count:
        kinds = ", ".join(type(item).__name__ for item in items)
        raise TypeError(f"{described} must return {count} tensor{'s' * (count > 1)}, got {kinds or 'nothing'}")
    return results


def unpacked(results: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """Results as a torch kernel gives them: one tensor by itself, several as a tuple."""
    return results[0] if len(results) == 1 else results
