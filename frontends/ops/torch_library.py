"""Ops in torch: the overloads `torch.ops.vllm_ir.<op>.default` and `.maybe_inplace` with their kernels.

Every overload has one kernel for all devices, which dispatches by priority; a fake kernel, which runs the native
definition unless the op has one of its own; and gradients, which come from the native definition too. Tracers therefore
record one node per call.

Another package may define operators of the namespace too, as vLLM does. One that exists already is adopted if its
schemas are ours: the overloads are used as they are, with our kernels, which know the implementations of both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch._ops import OpOverload

from vllm_ir.frontends.ops.gradients import differentiable
from vllm_ir.frontends.ops.memory import fresh, tensors_in
from vllm_ir.frontends.ops.signature import RegistrationError, location_of
from vllm_ir.frontends.ops.torch_internals import (
    Kernel,
    define_overload,
    definition_place,
    find_overload,
    forget_definitions,
    overload_schema,
    parse_schema,
    register_autograd_kernel,
    schema_facts,
    take_over,
)

NAMESPACE = "vllm_ir"
TorchOp = OpOverload[..., object]


@dataclass(frozen=True)
class Definition:
    """What torch is told about an op."""

    name: str
    schema: str
    """Parameters and results, as `torch.library.infer_schema` writes them."""
    donating_schema: str | None
    """The same with the activations marked as mutable. None: there is no overload `maybe_inplace`."""
    result_count: int
    native: Callable[..., object]
    fake: Callable[..., object]
    """Gives results without data: of the right sizes, dtypes and strides."""
    functional: Kernel
    """Kernel of `default`: leaves its arguments as they are, gives results with storages of their own."""
    donating: Kernel
    """Kernel of `maybe_inplace`: may overwrite the activations."""
    tags: tuple[torch.Tag, ...] = ()


@dataclass(frozen=True)
class TorchOverloads:
    """An op's overloads in torch. They, or our kernels in adopted ones, live as long as the library object does."""

    default: TorchOp
    maybe_inplace: TorchOp | None
    library: torch.library.Library
    adopted: bool
    """Whether another package has defined `default`."""

    def undefine(self) -> None:
        """Take the overloads out of torch, and our kernels out of adopted ones.

        What was traced with overloads that are gone cannot run any more.
        """
        forget_definitions(self.library)


def define(definition: Definition) -> TorchOverloads:
    """Define an op's overloads in torch, or adopt them where another package has.

    Raises:
        RegistrationError: another package has defined an overload with another schema.
    """
    adopted = _adoptable(definition, "default", definition.schema)
    if definition.donating_schema is not None:
        _adoptable(definition, "maybe_inplace", definition.donating_schema)
    # FRAGMENT: other parts of the product, and vLLM, define ops of this namespace as well.
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    native = _results(definition, definition.native, "the native definition")
    default = _overload(library, definition, "default", definition.schema, definition.functional)
    register_autograd_kernel(library, default, differentiable(native, run=default, recorded=default))
    if definition.donating_schema is None:
        return TorchOverloads(default, None, library, adopted)
    donating = _overload(library, definition, "maybe_inplace", definition.donating_schema, definition.donating)
    # Backward needs the activations, so a call that is recorded cannot use the permission to overwrite them.
    register_autograd_kernel(library, donating, differentiable(native, run=donating, recorded=default))
    return TorchOverloads(default, donating, library, adopted)


def _adoptable(definition: Definition, overload: str, schema: str) -> bool:
    """Whether an overload exists already, which then has this schema; RegistrationError if it has another one."""
    known = find_overload(NAMESPACE, definition.name, overload)
    if known is None:
        return False
    theirs, ours = overload_schema(known), parse_schema(f"{NAMESPACE}::{definition.name}{schema}")
    if not same_schema(theirs, ours):
        raise RegistrationError(
            f"vllm_ir.{definition.name}: another package has defined the overload {overload} with the schema "
            f"{schema_text(theirs)} ({definition_place(known)}), which does not match {schema_text(ours)} of the "
            f"native definition ({location_of(definition.native)}); rename one of the ops, or import "
            "only one of the packages"
        )
    return True


def same_schema(one: torch.FunctionSchema, other: torch.FunctionSchema) -> bool:
    """Whether arguments and results are the same, with names, types, defaults and what is written."""
    return schema_facts(one) == schema_facts(other)


def schema_text(schema: torch.FunctionSchema) -> str:
    """Arguments and results as torch prints them, without the name of the operator."""
    text = str(schema)
    return text[text.index("(") :]


def _overload(
    library: torch.library.Library, definition: Definition, overload: str, schema: str, kernel: Kernel
) -> TorchOp:
    described = _results(definition, definition.fake, "the fake implementation")

    def fake(*args: object) -> Tensor | tuple[Tensor, ...]:
        return unpacked(fresh(described(*args), tensors_in(args)))

    known = find_overload(NAMESPACE, definition.name, overload)
    if known is not None:
        take_over(library, known, kernel, fake)
        return known
    name = definition.name if overload == "default" else f"{definition.name}.{overload}"
    define_overload(library, NAMESPACE, name, schema, kernel, fake, tags=definition.tags)
    packet = getattr(getattr(torch.ops, NAMESPACE), definition.name)
    return getattr(packet, overload)


def _results(definition: Definition, fn: Callable[..., object], what: str) -> Callable[..., tuple[Tensor, ...]]:
    described = f"vllm_ir.{definition.name}: {what}"
    return lambda *args: as_results(fn(*args), definition.result_count, described)


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
