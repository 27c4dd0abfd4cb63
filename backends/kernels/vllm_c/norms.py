"""Norms by provider `vllm_c`.

The kernels divide by the rows' length and count rows from shapes, so that there have to be elements. They take weights
of the dtype of `x`, and need one. Newer releases multiply with it before the one rounding at the end, and
`fused_add_rms_norm` normalises the rounded sum, where the native definition rounds in between and normalises the exact
one: results differ by a rounding or two.
"""

from torch import Tensor

from vllm_ir.backends.kernels.external.layouts import (
    FLOATS,
    aligned,
    fits_rows,
    has_elements,
    has_even_rows,
    is_contiguous,
    is_row_major,
    same_shape,
    strides_are_aligned,
)
from vllm_ir.backends.kernels.vllm_c.library import LIBRARY, PROVIDER, SUPPORTED, operator
from vllm_ir.frontends.ops import ops


def _takes_norm(x: Tensor, weight: Tensor | None, variance_size: int | None) -> bool:
    return (
        variance_size is None
        and weight is not None
        and LIBRARY.takes(x)
        and LIBRARY.takes(weight)
        and x.dtype in FLOATS
        and x.dim() >= 2
        and has_elements(x)
        and fits_rows(weight, x)
    )


def _takes_rms_norm(x: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None) -> bool:
    # Ranks up to 4 are instantiated. Of contiguous rows, vectors are as wide as their length allows.
    return (
        _takes_norm(x, weight, variance_size)
        and x.dim() <= 4
        and (is_contiguous(x) or (is_row_major(x) and strides_are_aligned(x)))
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
    x: Tensor, x_residual: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None
) -> bool:
    return (
        _takes_norm(x, weight, variance_size)
        and has_even_rows(x)
        and LIBRARY.takes(x_residual)
        and x_residual.dtype == x.dtype
        and same_shape(x_residual.shape, x.shape)
        and is_contiguous(x_residual)
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
