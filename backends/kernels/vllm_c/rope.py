"""Rotary embedding by provider `vllm_c`.

The kernel is told the distance of tokens in query and key, and one distance of heads for both. Newer releases compute
in float32 and round once, older ones in the dtype of the query, as the native definition does.
"""

import math

from torch import Tensor, int64

from vllm_ir.backends.kernels.external.layouts import FLOATS, has_elements, is_contiguous, known, same_shape
from vllm_ir.backends.kernels.vllm_c.library import LIBRARY, PROVIDER, SUPPORTED, operator
from vllm_ir.frontends.ops import ops


def _width(x: Tensor, first: int) -> int:
    """How many elements a token has, in the dimensions from `first` on."""
    return math.prod(x.shape[first:])


def _takes_heads(x: Tensor, positions: Tensor, head_size: int) -> bool:
    """Whether `x` has the tokens of `positions`, one behind the other at one distance, each of dense heads."""
    outer = positions.dim()
    if not LIBRARY.takes(x) or not same_shape(x.shape[:outer], positions.shape) or not is_contiguous(x, outer):
        return False
    if x.dim() == outer + 2:
        fits = known(x.shape[-1] == head_size)
    else:
        fits = x.dim() == outer + 1 and known(x.shape[-1] % head_size == 0)
    if not fits or not known(x.stride(outer - 1) >= _width(x, outer)):
        return False
    # All sequences are walked as one.
    return outer == 1 or known(x.shape[0] == 1) or known(x.stride(0) == x.shape[1] * x.stride(1))


def _takes_rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    _is_neox: bool,
    rotary_dim: int | None,
) -> bool:
    if not LIBRARY.takes(positions) or positions.dtype is not int64 or positions.dim() not in (1, 2):
        return False
    # A table of another dtype is not rounded to that of the query by newer releases, and misread by older ones.
    if not LIBRARY.takes(cos_sin_cache) or cos_sin_cache.dtype not in FLOATS or cos_sin_cache.dim() != 2:
        return False
    columns = cos_sin_cache.shape[1]
    if rotary_dim is not None and not known(rotary_dim == columns):
        return False
    return (
        query.dtype == cos_sin_cache.dtype
        and key.dtype == cos_sin_cache.dtype
        and query.dim() == key.dim() > positions.dim()
        and has_elements(query, key, cos_sin_cache)
        and is_contiguous(positions)
        and is_contiguous(cos_sin_cache)
        and known(columns % 2 == 0)
        and known(columns <= head_size)
        and _takes_heads(query, positions, head_size)
        and _takes_heads(key, positions, head_size)
        # The kernel's own condition on their heads.
        and known(_width(query, positions.dim()) % _width(key, positions.dim()) == 0)
    )


@ops.rotary_embedding.register_impl(
    PROVIDER, supported=SUPPORTED, supports_args=_takes_rotary_embedding, inplace=["query", "key"]
)
def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None = None,  # noqa: ARG001  # always the table's width, as checked above
) -> tuple[Tensor, Tensor]:
    """`_C::rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, Tensor cos_sin_cache, bool
    is_neox)`; what newer releases have behind that keeps its defaults.
    """
    operator("rotary_embedding")(positions, query, key, head_size, cos_sin_cache, is_neox)
    return query, key
