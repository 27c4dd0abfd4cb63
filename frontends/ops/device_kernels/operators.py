"""The torch operators of kernels: `torch.ops.device_kernel.<key>_<kinds>_<fresh>`.

An operator writes the operands that have an aliased output, and returns only the new outputs. So it is a custom
operator like any other, to tracers, Inductor and the passes of the IR.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache

from torch import Tensor

from vllm_ir.frontends.fx.torch_objects import Overload, schema_of
from vllm_ir.frontends.ops.device_kernels.kernel import DeviceKernel, kernel_of_key
from vllm_ir.frontends.ops.device_kernels.signature import NAMESPACE, TENSOR, Signature
from vllm_ir.frontends.ops.device_kernels.simulation import KernelOutputError, simulate, simulate_fakes
from vllm_ir.frontends.ops.device_kernels.torch_internals import define_custom_operator
from vllm_ir.frontends.ops.torch_library import unpacked

_DEFINING = threading.RLock()


def operator_of(signature: Signature) -> Overload:
    """The operator of a signature, whose kernel exists; it is defined when it is first asked for.

    Raises:
        ValueError: an operand that is written is no tensor.
    """
    with _DEFINING:  # an operator can be defined only once
        return _defined(signature)


@cache
def _defined(signature: Signature) -> Overload:
    kernel = _kernel(signature)
    written = sorted(kernel.aliases)
    for position in written:
        if signature.kinds[position : position + 1] != TENSOR:
            raise ValueError(
                f"{kernel.describe()}: operand_output_aliases names operand {position}, which is not a tensor; "
                f"operands count from 0 and include constants, here are {len(signature.kinds)}"
            )

    def run(*operands: object, grid: Sequence[int], backend_config: str | None = None) -> object:  # noqa: ARG001  # for code generation
        found = simulate(kernel, operands)
        if len(found.fresh) != signature.fresh:
            raise KernelOutputError(
                f"{kernel.describe()}: returns {len(found.fresh) + len(written)} outputs here, "
                f"{signature.fresh + len(written)} when it was traced"
            )
        return _results(found.fresh)

    def fake(*operands: object, grid: Sequence[int], backend_config: str | None = None) -> object:  # noqa: ARG001  # for code generation
        return _results(simulate_fakes(kernel, operands)) if signature.fresh else None

    names = tuple(f"operand_{position}" for position in written)
    return define_custom_operator(NAMESPACE, signature.name, signature.schema(written), names, run, fake)


def _results(fresh: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...] | None:
    return unpacked(fresh) if fresh else None


def define_named(name: str) -> None:
    """Define the operator `name` of the namespace, if it is one of a kernel that exists; nothing happens otherwise."""
    signature = Signature.parse(name)
    if signature is not None and kernel_of_key(signature.key) is not None:
        operator_of(signature)


def signature_of(overload: Overload) -> Signature | None:
    """What an operator of a kernel takes and gives; None for all other operators."""
    if overload.namespace != NAMESPACE:
        return None
    return Signature.parse(schema_of(overload).name.partition("::")[2])


def kernel_of(overload: Overload) -> DeviceKernel | None:
    """The kernel that an operator calls; None for all other operators."""
    signature = signature_of(overload)
    return None if signature is None else _kernel(signature)


def _kernel(signature: Signature) -> DeviceKernel:
    kernel = kernel_of_key(signature.key)
    if kernel is None:
        raise KeyError(f"no device kernel has operators called {signature.key!r}")
    return kernel
