"""What custom operators of the user do, as far as Python says it.

`torch.library.custom_op` and `Library.impl` keep Python functions at dispatch keys. Called on fake tensors, such a
function runs like any code of the user, and a compiler that knows no kernels can trace what it does. A compiled kernel
at the same place would read memory that fake tensors do not have, so that it has to be known which one it is.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload, schema_of
from vllm_ir.frontends.fx.values import is_sequence
from vllm_ir.frontends.ops.torch_internals import composite_kernel, python_kernel, storage_id

NATIVE = ("aten", "prim", "prims", "_c10d_functional")
"""Operators that PyTorch defines; Python kernels of theirs are somebody's replacement and no definition."""

Definition = Callable[..., object]


class DefinitionError(FxImportError):
    """A definition that does not do what its operator's schema says; the reason says what, from a verb on."""


def python_definition(overload: Overload, device: str) -> Definition | None:
    """The Python function that a custom operator runs for tensors on a device, as a function of its arguments.

    Where the device has a compiled kernel, it is the function for all devices. None if there is neither, and for
    operators that are PyTorch's own.
    """
    if overload.namespace in NATIVE:
        return None
    return python_kernel(overload, device)


def composite_definition(overload: Overload) -> Definition | None:
    """What an operator of PyTorch's own calls on every device (`_foreach_add`); None if it has kernels for devices.

    Not of operators that draw random numbers, which are what they are by their own order of drawing.
    """
    info = op_info(overload)
    return composite_kernel(overload) if overload.namespace in NATIVE and not info.random else None


def new_results(overload: Overload, operands: object, returned: object) -> list[object]:
    """Of what a definition has returned, the results that the schema declares as new ones, in order.

    Raises:
        DefinitionError: one is in the memory of an operand or of another result.
    """
    returns = schema_of(overload).returns
    several = returned if is_sequence(returned) else ()
    results = [returned] if len(returns) == 1 else several
    fresh = [value for value, fact in zip(results, returns, strict=True) if fact.alias_info is None]
    taken = {storage_id(leaf) for leaf in pytree.tree_leaves(operands) if isinstance(leaf, Tensor)}
    for leaf in pytree.tree_leaves(fresh):
        if isinstance(leaf, Tensor):
            if storage_id(leaf) in taken:
                raise DefinitionError(
                    "returns memory of an operand or of another result, which its schema does not declare; return a "
                    "clone"
                )
            taken.add(storage_id(leaf))
    return fresh


__all__ = ["NATIVE", "DefinitionError", "composite_definition", "new_results", "python_definition"]
