"""A norm with a gate behind it, and the quantisation of its result to fp8, be it viewed as longer rows or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion, Numerics
from vllm_ir.frontends.ops import ops

Spelling: TypeAlias = Callable[[Tensor, Tensor, torch.dtype], Tensor]

_DTYPES = (torch.bfloat16, torch.float32, torch.float16)


def _in_float32(normed: Tensor, gate: Tensor, dtype: torch.dtype) -> Tensor:
    """As in Qwen3-Next."""
    return (normed * F.silu(gate.float())).to(dtype)


def _in_dtype_of_gate(normed: Tensor, gate: Tensor, _dtype: torch.dtype) -> Tensor:
    return normed * F.silu(gate)


def _by_op(normed: Tensor, gate: Tensor, _dtype: torch.dtype) -> Tensor:
    """What becomes of the others where an activation and a product are an op already."""
    return ops.silu_mul(gate, normed)


def _gated(x: Tensor, gate: Tensor, weight: Tensor | None, epsilon: float, spelling: Spelling) -> Tensor:
    return spelling(ops.rms_norm(x, weight, epsilon), gate, x.dtype)


def _gated_fused(x: Tensor, gate: Tensor, weight: Tensor | None, epsilon: float, _spelling: Spelling) -> Tensor:
    return ops.gated_rms_norm(x, gate, weight, epsilon)


def _numerics(_x: Tensor, gate: Tensor, _weight: Tensor | None, _epsilon: float, spelling: Spelling) -> Numerics:
    """The activation is rounded to the dtype of a gate that is not float32; the op does not round it."""
    return Numerics.EXACT if spelling is _in_float32 or gate.dtype is torch.float32 else Numerics.CHANGED


def _rows(x: Tensor, width: int | None) -> Tensor:
    """As it is, or as rows of that many elements: the heads of a token one behind the other."""
    return x if width is None else x.view(-1, width)


def _static(x: Tensor, gate: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, width: int | None) -> Tensor:
    return ops.static_scaled_fp8_quant(_rows(ops.gated_rms_norm(x, gate, weight, epsilon), width), scale)


def _static_fused(
    x: Tensor, gate: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, width: int | None
) -> Tensor:
    return _rows(ops.gated_rms_norm_static_fp8_quant(x, gate, weight, scale, epsilon), width)


def _grouped(
    x: Tensor,
    gate: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    powers: bool,
    least: float,
    width: int | None,
) -> object:
    gated = ops.gated_rms_norm(x, gate, weight, epsilon)
    return ops.per_token_group_fp8_quant(_rows(gated, width), group_size, powers, least)


def _grouped_fused(
    x: Tensor,
    gate: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    powers: bool,
    least: float,
    width: int | None,
) -> object:
    quantized, scales = ops.gated_rms_norm_per_token_group_fp8_quant(
        x, gate, weight, epsilon, group_size, powers, least
    )
    return _rows(quantized, width), _rows(scales, None if width is None else width // group_size)


def _inputs() -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    for number, weighted in enumerate((True, False, True, False)):
        dtype = _DTYPES[number % 3]
        x, gate = (torch.randn(6, 16).to(dtype) for _ in range(2))
        yield x, gate, torch.randn(16).to(dtype) if weighted else None


def _gated_examples() -> Iterator[tuple[object, ...]]:
    for spelling, inputs in product((_in_float32, _in_dtype_of_gate, _by_op), _inputs()):
        yield *inputs, 1e-6, spelling


def _static_examples() -> Iterator[tuple[object, ...]]:
    for width, inputs in product((None, 48), _inputs()):
        yield *inputs, torch.tensor([0.01]), 1e-6, width


def _grouped_examples() -> Iterator[tuple[object, ...]]:
    for width, powers in ((None, False), (None, True), (48, False), (48, True)):
        for inputs in _inputs():
            yield *inputs, 1e-6, 8, powers, 1e-10, width


FUSIONS = (
    Fusion("gated_rms_norm", _gated, _gated_fused, _gated_examples, _numerics),
    Fusion("gated_rms_norm_static_quant", _static, _static_fused, _static_examples),
    Fusion("gated_rms_norm_per_token_group_quant", _grouped, _grouped_fused, _grouped_examples),
)
