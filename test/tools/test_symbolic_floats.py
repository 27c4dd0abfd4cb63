"""Floats of a program that change from call to call, which Dynamo turns into symbols."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vllm_ir as ir

SCALE = 1.5

PROGRAMS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "a product": lambda x, scale: x * scale,
    "an update in place": lambda x, scale: x.add_(scale),
    "an argument of an operator that takes numbers": lambda x, scale: torch.nn.functional.layer_norm(
        x, (4,), eps=scale
    ),
    "an argument of an op": lambda x, scale: ir.ops.rms_norm(x, None, scale),
}


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir", "vllm_ir_xla"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_that_change(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    torch.compiler.reset()
    compiled = torch.compile(program, backend=backend)
    before = len(ir.compile_reports())
    with torch.no_grad():
        for scale in (0.5, 0.75, 1.25, 0.75):
            x = torch.arange(12.0).reshape(3, 4)
            want = program(x.clone(), scale)
            torch.testing.assert_close(compiled(x.clone(), scale), want, rtol=1e-6, atol=1e-6)
    assert len(ir.compile_reports()) - before == 3  # one graph for each value


def test_a_global_with_dynamic_sizes() -> None:
    compiled = torch.compile(lambda x: x * SCALE, backend="vllm_ir_eager", dynamic=True)
    with torch.no_grad():
        for size in (3, 8):
            assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 1.5))
