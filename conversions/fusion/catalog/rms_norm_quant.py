"""A norm, with or without a residual addition, and the quantisation of its result to fp8 or int8."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops

_DTYPES = (torch.bfloat16, torch.float32, torch.float16)


def _norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, epsilon: float
) -> tuple[Tensor] | tuple[Tensor, Tensor]:
    """The normalised values, and the new residual if there is one."""
    if residual is None:
        return (ops.rms_norm(x, weight, epsilon),)
    return ops.fused_add_rms_norm(x, residual, weight, epsilon)


def _fused(kind: str, residual: Tensor | None) -> str:
    return f"{'rms_norm' if residual is None else 'fused_add_rms_norm'}_{kind}_quant"


def _static(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, scale: Tensor, epsilon: float, dtype: str
) -> object:
    normed, *rest = _norm(x, residual, weight, epsilon)
    return ops[f"static_scaled_{dtype}_quant"](normed, scale), *rest


def _static_fused(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, scale: Tensor, epsilon: float, dtype: str
) -> object:
    inputs = (x,) if residual is None else (x, residual)
    return ops[_fused(f"static_{dtype}", residual)](*inputs, weight, scale, epsilon)


def _dynamic(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, epsilon: float, dtype: str, bound: Tensor | None
) -> object:
    normed, *rest = _norm(x, residual, weight, epsilon)
    options = () if dtype == "int8" else (bound,)
    return *ops[f"dynamic_per_token_scaled_{dtype}_quant"](normed, *options), *rest


def _dynamic_fused(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, epsilon: float, dtype: str, bound: Tensor | None
) -> object:
    inputs = (x,) if residual is None else (x, residual)
    options = () if dtype == "int8" else (bound,)
    return ops[_fused(f"dynamic_per_token_{dtype}", residual)](*inputs, weight, epsilon, *options)


def _grouped(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    dtype: str,
    powers: bool,
    least: float,
) -> object:
    normed, *rest = _norm(x, residual, weight, epsilon)
    options = () if dtype == "int8" else (powers,)
    return *ops[f"per_token_group_{dtype}_quant"](normed, group_size, *options, least), *rest


def _grouped_fused(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    dtype: str,
    powers: bool,
    least: float,
) -> object:
    inputs = (x,) if residual is None else (x, residual)
    options = () if dtype == "int8" else (powers,)
    return ops[_fused(f"per_token_group_{dtype}", residual)](*inputs, weight, epsilon, group_size, *options, least)


def _double(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    epsilon: float,
    scale: Tensor | None,
    other_scale: Tensor | None,
    group_size: int | None,
    other_group_size: int | None,
    powers: bool,
    other_powers: bool,
    least: float | None,
    other_least: float | None,
) -> object:
    """Two projections of one norm, each with its scale, or with its groups."""
    normed, *rest = _norm(x, residual, weight, epsilon)
    if scale is not None:
        quantize = ops.static_scaled_fp8_quant
        return quantize(normed, scale), quantize(normed, other_scale), *rest
    quantize = ops.per_token_group_fp8_quant
    first = quantize(normed, group_size, powers, least)
    return *first, *quantize(normed, other_group_size, other_powers, other_least), *rest


def _double_fused(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    epsilon: float,
    scale: Tensor | None,
    other_scale: Tensor | None,
    *groups: object,
) -> object:
    inputs = (x,) if residual is None else (x, residual)
    if scale is not None:
        return ops[_fused("double_static_fp8", residual)](*inputs, weight, scale, other_scale, epsilon)
    return ops[_fused("double_per_token_group_fp8", residual)](*inputs, weight, epsilon, *groups)


def _inputs() -> Iterator[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Activations, residual and weight, each of the last two there or not; the dtypes take turns."""
    for dtype, (added, weighted) in zip(cycle(_DTYPES), product((False, True), (True, False)), strict=False):
        x, residual = (torch.randn(5, 16).to(dtype) for _ in range(2))
        yield x, residual if added else None, torch.randn(16).to(dtype) if weighted else None


def _static_examples() -> Iterator[tuple[object, ...]]:
    for dtype in ("fp8", "int8"):
        for x, residual, weight in _inputs():
            yield x, residual, weight, torch.tensor([0.01]), 1e-6, dtype


def _dynamic_examples() -> Iterator[tuple[object, ...]]:
    for dtype, bound in (("fp8", None), ("int8", None), ("fp8", torch.tensor([1.5]))):
        for x, residual, weight in _inputs():
            yield x, residual, weight, 1e-6, dtype, bound


def _grouped_examples() -> Iterator[tuple[object, ...]]:
    for dtype, powers in (("fp8", False), ("int8", False), ("fp8", True)):
        for x, residual, weight in _inputs():
            yield x, residual, weight, 1e-6, 8, dtype, powers, 1e-10


def _double_examples() -> Iterator[tuple[object, ...]]:
    for inputs in _inputs():
        scales = (torch.tensor([0.01]), torch.tensor([0.02]))
        yield *inputs, 1e-6, *scales, None, None, False, False, None, None
    # The first of the two is whichever has its flags.
    for powers in ((False, False), (True, False), (True, True)):
        for inputs in _inputs():
            yield *inputs, 1e-6, None, None, 8, 4, *powers, 1e-10, 1e-9


FUSIONS = (
    Fusion("rms_norm_static_quant", _static, _static_fused, _static_examples),
    Fusion("rms_norm_dynamic_per_token_quant", _dynamic, _dynamic_fused, _dynamic_examples),
    Fusion("rms_norm_per_token_group_quant", _grouped, _grouped_fused, _grouped_examples),
    Fusion("rms_norm_double_quant", _double, _double_fused, _double_examples),
)
