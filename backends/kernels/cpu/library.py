"""The kernels as torch operators, in the namespace `vllm_ir_cpu`: how they are defined, and those of rows.

Schemas and fake kernels are defined in Python, so that programs that use the operators can be traced, compiled and
parsed before the extension is built. The C++ kernels are registered for the dispatch key CPU when the extension is
loaded; until then, a call lands in a kernel of lower precedence, which loads it and calls again.
"""

# pyright: reportUnknownMemberType=false
# torch.library lacks types.

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import SymInt, Tensor
from torch._ops import OpOverload

from vllm_ir.backends.kernels.cpu.build import load

NAMESPACE = "vllm_ir_cpu"
Operator = OpOverload[..., object]

# Definitions die with the library object.
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")


def define(schema: str, fake: Callable[..., object], kernel: Callable[..., object] | None = None) -> Operator:
    """Define an operator, by its schema with the name in front; `kernel` is None where the extension has it."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    operator = cast("Operator", getattr(getattr(torch.ops, NAMESPACE), name).default)
    _LIBRARY.impl(name, _loading(operator) if kernel is None else kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    return operator


def _loading(operator: Operator) -> Callable[..., object]:
    """The kernel for everything that has no other: tensors elsewhere, and the CPU before the extension is loaded."""

    def kernel(*args: object) -> object:
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        foreign = [tensor for tensor in tensors if tensor.device.type != "cpu" or tensor.layout is not torch.strided]
        if foreign:
            raise NotImplementedError(
                f"{operator.name()}: takes dense tensors on the cpu, got one on {foreign[0].device} with layout "
                f"{foreign[0].layout}"
            )
        load()
        return operator(*args)

    return kernel


def _rms_norm_fake(
    x: Tensor, weight: Tensor | None, _epsilon: float, _variance_size: int | SymInt | None = None
) -> Tensor:
    dtype = x.dtype if weight is None else torch.promote_types(x.dtype, weight.dtype)
    return torch.empty_like(x, dtype=dtype)


def _gated_fake(x: Tensor, _approximate: str = "none") -> Tensor:
    return torch.empty_like(x[..., : x.shape[-1] // 2])


def in_place_fake(*_args: object) -> None:
    """Nothing to infer: the results are the arguments."""


RMS_NORM = define(
    "rms_norm(Tensor x, Tensor? weight, float epsilon, SymInt? variance_size=None) -> Tensor", _rms_norm_fake
)
FUSED_ADD_RMS_NORM_ = define(
    "fused_add_rms_norm_(Tensor(a!) x, Tensor(b!) residual, Tensor? weight, float epsilon, SymInt? variance_size=None)"
    " -> ()",
    in_place_fake,
)
SILU_AND_MUL = define("silu_and_mul(Tensor x) -> Tensor", _gated_fake)
GELU_AND_MUL = define('gelu_and_mul(Tensor x, str approximate="none") -> Tensor', _gated_fake)
ROTARY_EMBEDDING_ = define(
    "rotary_embedding_(Tensor positions, Tensor(a!) query, Tensor(b!) key, int head_size, Tensor cos_sin_cache, "
    "bool is_neox) -> ()",
    in_place_fake,
)


def call(operator: Operator, *args: object) -> Sequence[Tensor]:
    """Call an operator; its results as a sequence, which is empty for one that works in place."""
    result = operator(*args)
    if result is None:
        return ()
    return (result,) if isinstance(result, Tensor) else cast("Sequence[Tensor]", result)
