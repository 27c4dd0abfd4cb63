"""Tensors of any strides: what the provider takes, with which result, and what its operators take beyond that."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

NAMES = [
    "rms_norm",
    "fused_add_rms_norm",
    "silu_and_mul",
    "gelu_and_mul",
    "rotary_embedding",
    "static_scaled_fp8_quant",
    "static_scaled_int8_quant",
    "dynamic_per_token_scaled_fp8_quant",
    "dynamic_per_token_scaled_int8_quant",
    "per_token_group_fp8_quant",
    "per_token_group_int8_quant",
]
EPSILON = 1e-5


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def columns(x: Tensor) -> Tensor:
    return F.pad(x, (3, 5), value=float("nan"))[..., 3:-5]


LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    # name: (a tensor of the same shape and another layout, whether the provider takes it)
    "contiguous": (lambda x: x, True),
    "columns of a wider tensor": (columns, True),
    "every second row": (lambda x: x.repeat_interleave(2, 1)[:, ::2], True),
    "every second matrix": (lambda x: x.repeat_interleave(2, 0)[::2], True),
    "repeated rows": (lambda x: x[:, :1].expand(x.shape), True),
    "repeated matrices": (lambda x: x[:1].expand(x.shape), True),
    "overlapping rows": (lambda x: x.flatten().as_strided(x.shape, (x.shape[1] * x.shape[2], 4, 1)), True),
    "rows in another order": (lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), False),
    "transposed": (lambda x: x.mT.contiguous().mT, False),
    "every second column": (lambda x: x.repeat_interleave(2, -1)[..., ::2], False),
    "repeated columns": (lambda x: x[..., :1].expand(x.shape), False),
}


def layout_arguments(name: str, change: Callable[[Tensor], Tensor], dtype: torch.dtype) -> tuple[object, ...]:
    x, residual = change(integers(3, 4, 48, dtype=dtype)), change(integers(3, 4, 48, dtype=dtype, seed=1))
    weight = integers(96, dtype=dtype, seed=2)[::2]
    table = random(20, 24, seed=3)[:, :12]
    positions = torch.arange(24)[::2].reshape(3, 4) % 20
    return {
        "rms_norm": (x, weight, EPSILON),
        "fused_add_rms_norm": (x, residual, weight, EPSILON),
        "silu_and_mul": (x,),
        "gelu_and_mul": (x, "tanh"),
        "rotary_embedding": (positions, x, residual, 16, table, True),
        "static_scaled_fp8_quant": (x, torch.tensor([0.3, 0.01])[::2]),
        "static_scaled_int8_quant": (x, torch.tensor([0.3, 0.01])[::2]),
        "dynamic_per_token_scaled_fp8_quant": (x, torch.tensor([7.5])),
        "dynamic_per_token_scaled_int8_quant": (x,),
        "per_token_group_fp8_quant": (x, 16),
        "per_token_group_int8_quant": (x, 16),
    }[name]


def error_of(agreement: ModuleType, name: str, args: tuple[object, ...]) -> object:
    return {"silu_and_mul": agreement.SILU_ERROR, "gelu_and_mul": agreement.gelu_error(args[0])}.get(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_layouts(agreement: ModuleType, name: str, layout: str, dtype: torch.dtype):
    change, taken = LAYOUTS[layout]
    op = ops[name]
    args = layout_arguments(name, change, dtype)
    want = agreement.as_tuple(op.native(*args))
    error = error_of(agreement, name, args)
    with op.set_priority([PROVIDER]):
        assert (op.dispatch(*args).provider == PROVIDER) == taken
        before = agreement.copies(args)
        for got, right in zip(agreement.as_tuple(op(*args)), want, strict=True):
            agreement.assert_close(got, right, error)
            assert got.stride() == right.stride(), "the layout is not the one that was traced"
        assert all(torch.equal(a, b) for a, b in zip(args, before, strict=True) if isinstance(a, Tensor))
        if op.maybe_inplace is None:
            return
        for got, right in zip(agreement.as_tuple(op.maybe_inplace(*args)), want, strict=True):
            agreement.assert_close(got, right, error)


@pytest.mark.parametrize(
    "layout", [name for name, (_, taken) in LAYOUTS.items() if not taken and "repeated" not in name]
)
@pytest.mark.parametrize("name", NAMES)
def test_operators_take_layouts_that_the_provider_refuses(agreement: ModuleType, name: str, layout: str):
    args = layout_arguments(name, LAYOUTS[layout][0], torch.float32)
    want = agreement.as_tuple(ops[name].native(*args))
    got = agreement.as_tuple(ops[name].impls[PROVIDER].impl_fn(*args))
    for left, right in zip(got, want, strict=True):
        agreement.assert_close(left, right, error_of(agreement, name, args))
