"""A gated activation and the quantisation of its result to fp8."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops

_ACTIVATIONS = (("silu", torch.bfloat16), ("none", torch.float32), ("tanh", torch.float16))
"""`silu`, or how `gelu` is computed; and the dtypes, which take turns."""


def _activated(x: Tensor, activation: str) -> Tensor:
    return ops.silu_and_mul(x) if activation == "silu" else ops.gelu_and_mul(x, activation)


def _fused(activation: str, quantization: str, *arguments: object) -> object:
    if activation == "silu":
        return ops[f"silu_and_mul_{quantization}"](*arguments)
    return ops[f"gelu_and_mul_{quantization}"](*arguments, activation)


def _static(x: Tensor, scale: Tensor, activation: str) -> object:
    return ops.static_scaled_fp8_quant(_activated(x, activation), scale)


def _static_fused(x: Tensor, scale: Tensor, activation: str) -> object:
    return _fused(activation, "static_fp8_quant", x, scale)


def _dynamic(x: Tensor, bound: Tensor | None, activation: str) -> object:
    return ops.dynamic_per_token_scaled_fp8_quant(_activated(x, activation), bound)


def _dynamic_fused(x: Tensor, bound: Tensor | None, activation: str) -> object:
    return _fused(activation, "dynamic_per_token_fp8_quant", x, bound)


def _grouped(x: Tensor, group_size: int, powers: bool, epsilon: float, activation: str) -> object:
    return ops.per_token_group_fp8_quant(_activated(x, activation), group_size, powers, epsilon)


def _grouped_fused(x: Tensor, group_size: int, powers: bool, epsilon: float, activation: str) -> object:
    return _fused(activation, "per_token_group_fp8_quant", x, group_size, powers, epsilon)


def _inputs() -> Iterator[tuple[Tensor, str]]:
    for activation, dtype in _ACTIVATIONS:
        yield torch.randn(5, 32).to(dtype), activation


def _static_examples() -> Iterator[tuple[object, ...]]:
    for x, activation in _inputs():
        yield x, torch.tensor([0.01]), activation


def _dynamic_examples() -> Iterator[tuple[object, ...]]:
    for bound in (None, torch.tensor([1.5])):
        for x, activation in _inputs():
            yield x, bound, activation


def _grouped_examples() -> Iterator[tuple[object, ...]]:
    for powers in (False, True):
        for x, activation in _inputs():
            yield x, 8, powers, 1e-10, activation


FUSIONS = (
    Fusion("activation_static_quant", _static, _static_fused, _static_examples),
    Fusion("activation_dynamic_per_token_quant", _dynamic, _dynamic_fused, _dynamic_examples),
    Fusion("activation_per_token_group_quant", _grouped, _grouped_fused, _grouped_examples),
)
