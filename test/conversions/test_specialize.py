"""Programs of symbolic sizes with numbers in their place, against eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import vllm_ir as ir

Program = Callable[..., object]


def rows(kv: Tensor, x: Tensor) -> object:
    count = x.shape[0]
    kv[0, :count].copy_(x)
    return x.view(2, count // 2).sum(0), kv[:, 1:count], x[: count - 1], count


def reshaped(kv: Tensor, x: Tensor) -> object:
    flat = kv.view(kv.shape[0] * kv.shape[1])
    flat[: x.shape[0]].add_(x)
    return torch.cat([flat, x]).sum(), kv.numel() + x.shape[0], torch.full((kv.shape[1] - 1,), 2.0)


def computed(kv: Tensor, x: Tensor) -> object:
    width = max(kv.shape[1], x.shape[0])
    kv.mul_(width)
    return torch.arange(width) + kv.stride(0), x.reshape(-1, 2).t()


@pytest.mark.parametrize("program", [rows, reshaped, computed])
@pytest.mark.parametrize("sizes", [(2, 9, 6), (1, 14, 4)])
def test_a_specialised_program_does_what_eager_does(program: Program, sizes: Sequence[int]):
    height, width, count = sizes
    traced = make_fx(program, tracing_mode="symbolic")(torch.zeros(3, 19), torch.zeros(10))
    shapes = [node.meta["val"].shape for node in traced.graph.find_nodes(op="placeholder")]
    symbols = [str(size) for shape in shapes for size in shape]
    numbers = ",".join(f'"{symbol}={size}"' for symbol, size in zip(symbols, sizes, strict=True))
    module = ir.run_passes(ir.import_fx(traced), f"specialize{{sizes={numbers}}}")
    module.verify()
    assert "?" not in str(module)

    arguments = [torch.randn(height, width), torch.randn(count)]
    expected = [argument.clone() for argument in arguments]
    actual = ir.export_fx(ir.parse(str(module)))(*arguments)
    wanted = program(*expected)
    torch.testing.assert_close((list(actual), arguments), (list(wanted), expected), rtol=0, atol=0)
