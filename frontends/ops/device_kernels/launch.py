"""Running a kernel, or recording that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import SymInt, Tensor

from vllm_ir.frontends.ops.device_kernels.kernel import DeviceKernel, kernel_of_key
from vllm_ir.frontends.ops.device_kernels.operators import operator_of
from vllm_ir.frontends.ops.device_kernels.signature import Signature, kind_of
from vllm_ir.frontends.ops.device_kernels.simulation import form_of, simulate
from vllm_ir.frontends.ops.device_kernels.torch_internals import one_node, runs_plainly
from vllm_ir.frontends.ops.memory import tensors_in


@one_node
def launch(
    key: str,
    grid: Sequence[int | SymInt],
    *operands: object,
    backend_config: str | None = None,
    operand_output_aliases: Mapping[int, int] | None = None,  # noqa: ARG001  # filled by a pass, for code generation
) -> Sequence[Tensor]:
    """Run the kernel that `key` names: aliased operands are written, and the new outputs are returned.

    In a list if the simulator returns a tuple, in a tuple if it returns one tensor: Dynamo knows the kind of a
    container that a node gives, and nothing else that is not a tensor. Errors as for `KernelLaunch`.
    """
    kernel = kernel_of_key(key)
    if kernel is None:
        raise KeyError(f"no device kernel is called {key!r}; import the module that declares it")
    _check_grid(kernel, grid)
    kinds = kinds_of(kernel, operands)
    if runs_plainly(tensors_in(operands)):
        fresh, several = simulate(kernel, operands)
    else:
        _refuse_gradients(kernel, operands)
        form = form_of(kernel, operands)
        several = form.several
        result = operator_of(Signature(key, kinds, form.fresh))(
            *operands, grid=list(grid), backend_config=backend_config
        )
        fresh = tuple(tensors_in([result]))
    return list(fresh) if several else fresh


def kinds_of(kernel: DeviceKernel, operands: Sequence[object]) -> str:
    """A letter for each operand; see `signature`.

    Raises:
        TypeError: a kernel cannot take an operand.
        ValueError: an operand that is written is no tensor.
    """
    kinds = [kind_of(operand) for operand in operands]
    for position, (kind, operand) in enumerate(zip(kinds, operands, strict=True)):
        if kind is None:
            raise TypeError(
                f"{kernel.describe()}: operand {position} is a {type(operand).__name__}; operands are tensors, "
                "numbers, strings, dtypes, None, and lists of tensors or numbers"
            )
    for position in kernel.aliases:
        if position >= len(operands) or not isinstance(operands[position], Tensor):
            raise ValueError(
                f"{kernel.describe()}: operand_output_aliases names operand {position}, which is not a tensor; "
                f"operands count from 0 and include constants, here are {len(operands)}"
            )
    return "".join(cast("list[str]", kinds))


def _refuse_gradients(kernel: DeviceKernel, operands: Sequence[object]) -> None:
    # Autograd would take a written operand for what it was before the write, and say nothing.
    if kernel.aliases and torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(operands)):
        raise ValueError(f"{kernel.describe()}: it has no gradient; call it under torch.no_grad()")


def _check_grid(kernel: DeviceKernel, grid: Sequence[object]) -> None:
    for number in grid:
        if not isinstance(number, int | SymInt) or isinstance(number, bool):
            raise TypeError(f"{kernel.describe()}: a grid is made of integers, got {number!r}")
