"""A sum over ranks followed by a norm, with or without a residual addition and quantisation to fp8.

The sum is an op's or torch's functional collective, on any group. A residual in front of the sum is one behind it in
what `add_rms_norm` makes. Gemma's norm, which is rounded last, is what `recognize_rms_norm_rounded_last` makes of it;
its weight, `1 + weight`, is a value as any other. Where the new residual has no user, the fused op is left with a
result that is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, product
from typing import TypeAlias, cast

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import AnyString, Fusion
from vllm_ir.frontends.ops import ops

Reduced: TypeAlias = Callable[[Tensor, str], Tensor]
Added: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_DTYPES = (torch.bfloat16, torch.float32, torch.float16)


def _by_op(x: Tensor, group: str) -> Tensor:
    return ops.all_reduce(x, group)


def _by_torch(x: Tensor, group: str) -> Tensor:
    functional = torch.ops._c10d_functional
    return cast("Tensor", functional.wait_tensor(functional.all_reduce(x, "sum", group)))  # pyright: ignore[reportUnknownMemberType]  # untyped in torch


def _sum_first(total: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    return total, residual


def _residual_first(total: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    return residual, total


def _operands(
    x: Tensor, residual: Tensor | None, group: str, reduced: Reduced, added: Added
) -> tuple[str, tuple[Tensor, ...]]:
    """The norm's name, and the tensors that it adds and normalises."""
    total = reduced(x, group)
    return ("rms_norm", (total,)) if residual is None else ("fused_add_rms_norm", added(total, residual))


def _norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    epsilon: float,
    group: str,
    reduced: Reduced,
    added: Added,
) -> object:
    name, operands = _operands(x, residual, group, reduced, added)
    return ops[name](*operands, weight, epsilon)


def _fused(x: Tensor, residual: Tensor | None, weight: Tensor | None, epsilon: float, group: str, *_: object) -> object:
    if residual is None:
        return ops.all_reduce_rms_norm(x, weight, epsilon, group)
    return ops.all_reduce_fused_add_rms_norm(x, residual, weight, epsilon, group)


def _rounded_last(
    x: Tensor, residual: Tensor | None, weight: Tensor, epsilon: float, group: str, reduced: Reduced
) -> object:
    total = reduced(x, group)
    if residual is None:
        return ops.rms_norm(total.float(), weight, epsilon).to(x.dtype)
    total = total + residual
    return ops.rms_norm(total.float(), weight, epsilon).to(x.dtype), total


def _fused_rounded_last(
    x: Tensor, residual: Tensor | None, weight: Tensor, epsilon: float, group: str, _: Reduced
) -> object:
    if residual is None:
        return ops.all_reduce_rms_norm(x, weight, epsilon, group, None, True)
    return ops.all_reduce_fused_add_rms_norm(x, residual, weight, epsilon, group, None, True)


def _quantised(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    group: str,
    reduced: Reduced,
    added: Added,
    in_one: bool,
) -> object:
    """`in_one`: the norm and the quantisation are one op already."""
    name, operands = _operands(x, residual, group, reduced, added)
    if in_one:
        return ops[f"{name}_static_fp8_quant"](*operands, weight, scale, epsilon)
    normed = ops[name](*operands, weight, epsilon)
    if residual is None:
        return ops.static_scaled_fp8_quant(normed, scale)
    return ops.static_scaled_fp8_quant(normed[0], scale), normed[1]


def _fused_quantised(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    group: str,
    *_: object,
) -> object:
    if residual is None:
        return ops.all_reduce_rms_norm_static_fp8_quant(x, weight, scale, epsilon, group)
    return ops.all_reduce_fused_add_rms_norm_static_fp8_quant(x, residual, weight, scale, epsilon, group)


def _inputs() -> Iterator[tuple[Tensor, Tensor | None, Tensor | None, Reduced, Added]]:
    """Activations, residual and weight, each of the last two there or not, and spellings; the dtypes take turns."""
    residuals = ((False, _sum_first), (True, _sum_first), (True, _residual_first))
    spellings = product((_by_op, _by_torch), residuals, (True, False))
    for dtype, (reduced, (with_residual, added), weighted) in zip(cycle(_DTYPES), spellings, strict=False):
        x, residual = (torch.randn(5, 16).to(dtype) for _ in range(2))
        yield x, residual if with_residual else None, torch.randn(16).to(dtype) if weighted else None, reduced, added


def _examples() -> Iterator[tuple[object, ...]]:
    for x, residual, weight, reduced, added in _inputs():
        yield x, residual, weight, 1e-6, AnyString("tp"), reduced, added


def _examples_rounded_last() -> Iterator[tuple[object, ...]]:
    for dtype, (reduced, added) in product(
        (torch.bfloat16, torch.float16), product((_by_op, _by_torch), (False, True))
    ):
        x, residual = (torch.randn(5, 16).to(dtype) for _ in range(2))
        yield x, residual if added else None, torch.randn(16), 1e-6, AnyString("tp"), reduced


def _examples_quantised() -> Iterator[tuple[object, ...]]:
    for in_one in (False, True):
        for x, residual, weight, reduced, added in _inputs():
            yield x, residual, weight, torch.tensor([0.01]), 1e-6, AnyString("tp"), reduced, added, in_one


FUSIONS = (
    Fusion("all_reduce_rms_norm", _norm, _fused, _examples),
    Fusion("all_reduce_rms_norm_rounded_last", _rounded_last, _fused_rounded_last, _examples_rounded_last),
    Fusion("all_reduce_rms_norm_static_quant", _quantised, _fused_quantised, _examples_quantised),
)
