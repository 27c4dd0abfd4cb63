"""Gated activations by provider `vllm_c`. The kernels are told no strides: both halves of a row lie side by side."""

from torch import Tensor

from vllm_ir.backends.kernels.external.layouts import FLOATS, aligned, half_rows, has_elements, is_contiguous, known
from vllm_ir.backends.kernels.vllm_c.library import LIBRARY, PROVIDER, SUPPORTED, operator
from vllm_ir.frontends.ops import ops


def _takes_gated(x: Tensor) -> bool:
    return (
        LIBRARY.takes(x)
        and x.dtype in FLOATS
        and x.dim() >= 1
        and has_elements(x)
        and known(x.shape[-1] % 2 == 0)
        and is_contiguous(x)
    )


@ops.silu_and_mul.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_gated)
def silu_and_mul(x: Tensor) -> Tensor:
    """`_C::silu_and_mul(Tensor! result, Tensor input)`."""
    result = half_rows(x)
    operator("silu_and_mul")(result, aligned(x))
    return result


def _takes_gelu_and_mul(x: Tensor, approximate: str) -> bool:
    return approximate in ("none", "tanh") and _takes_gated(x)


@ops.gelu_and_mul.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_gelu_and_mul)
def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    """`_C::gelu_and_mul(Tensor! out, Tensor input)`, or `_C::gelu_tanh_and_mul` of the same form."""
    result = half_rows(x)
    name = "gelu_tanh_and_mul" if approximate == "tanh" else "gelu_and_mul"
    operator(name)(result, aligned(x))
    return result
