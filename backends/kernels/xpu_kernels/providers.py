"""Norms and gated activations by provider `xpu_kernels`, of contiguous tensors.

Schemas are those of vLLM's own kernels (see `vllm_c`). Releases differ in which inputs they declare as written, though
none writes them: a compiler copies what an older one declares.
"""

from torch import Tensor

from vllm_ir.backends.kernels.external.layouts import (
    FLOATS,
    aligned,
    fits_rows,
    half_rows,
    has_elements,
    is_contiguous,
    known,
    same_shape,
)
from vllm_ir.backends.kernels.xpu_kernels.library import LIBRARY, PROVIDER, SUPPORTED, operator
from vllm_ir.frontends.ops import ops


def _takes(x: Tensor) -> bool:
    return LIBRARY.takes(x) and x.dtype in FLOATS and x.dim() >= 2 and has_elements(x) and is_contiguous(x)


def _takes_rms_norm(x: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None) -> bool:
    return (
        variance_size is None
        and weight is not None
        and _takes(x)
        and x.dim() <= 4
        and LIBRARY.takes(weight)
        and fits_rows(weight, x)
    )


@ops.rms_norm.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_rms_norm)
def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,  # noqa: ARG001  # None, as checked above
) -> Tensor:
    """`_C::rms_norm(Tensor! result, Tensor input, Tensor weight, float epsilon)`."""
    assert weight is not None
    result = x.new_empty(x.shape)
    operator("rms_norm")(result, aligned(x), aligned(weight), epsilon)
    return result


def _takes_fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> bool:
    return (
        _takes_rms_norm(x, weight, epsilon, variance_size)
        and _takes(x_residual)
        and x_residual.dtype == x.dtype
        and same_shape(x_residual.shape, x.shape)
    )


@ops.fused_add_rms_norm.register_impl(
    PROVIDER, supported=SUPPORTED, supports_args=_takes_fused_add_rms_norm, inplace=["x", "x_residual"]
)
def fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,  # noqa: ARG001  # None, as checked above
) -> tuple[Tensor, Tensor]:
    """`_C::fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float epsilon)`."""
    operator("fused_add_rms_norm")(x, x_residual, weight, epsilon)
    return x, x_residual


def _takes_gated(x: Tensor) -> bool:
    return _takes(x) and known(x.shape[-1] % 2 == 0)


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
