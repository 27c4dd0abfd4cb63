"""Programs of views and writes through the backend `vllm_ir_xla`: what a caller sees is what eager mode shows."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from vllm_ir.tools.xla import vllm_ir_xla

pytest.importorskip("jaxlib", reason="needs the extra stablehlo")


def _load(name: str) -> ModuleType:
    full = f"vllm_ir_programs_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).parents[1] / "programs" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


harness, random_programs = _load("harness"), _load("test_random_programs")


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def compare(program: Callable[..., object], make: Callable[[], Sequence[object]]) -> None:
    """A program in eager mode and compiled by Dynamo with the backend."""
    compiled = torch.compile(program, backend=vllm_ir_xla, fullgraph=True)
    harness.observe(program, make()).compare(harness.observe(compiled, make()), "through XLA")


@given(program_steps=random_programs.steps, arguments=st.sampled_from(random_programs.ARGUMENTS))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_random_programs(program_steps: Sequence[tuple[str, int, int, int, int]], arguments) -> None:
    def program(*inputs: Tensor) -> tuple[object, ...]:
        return tuple(pytree.tree_leaves(random_programs.run(program_steps, inputs)))

    try:
        expected = harness.observe(program, arguments())
    except RuntimeError:
        return  # eager mode refuses it; what the import then does is the subject of test/programs
    graph = make_fx(program)(*arguments())  # not by Dynamo, which refuses some of the views
    message = random_programs.refusal(
        lambda: expected.compare(harness.observe(vllm_ir_xla(graph, arguments()), arguments()), "through XLA")
    )
    assert message is None or "share memory" in message, message


def same_memory(x: Tensor):
    """Outputs that are all of an argument: the argument itself, or another tensor."""
    y = x.add_(1)
    return x, y, x[:], x.view(x.shape), x.detach(), x.contiguous()


def lists(x: Tensor, y: Tensor):
    torch._foreach_add_([x, y], [y, x])
    one, two = torch._foreach_mul([x, y], 2.0)
    torch._foreach_addcmul_([one], [two], [y], value=0.5)
    return one, torch._foreach_neg([y])[0]


def narrow_chain(x: Tensor, y: Tensor):
    """Each operation rounds."""
    total = x
    for i in range(4):
        total = (total + y) * 1.1 - x / (i + 3)
    x.mul_(total).sub_(y)
    return total, x * y + total


@pytest.mark.parametrize("program", [same_memory, lists], ids=lambda program: program.__name__)
def test_programs(program: Callable[..., object]) -> None:
    count = program.__code__.co_argcount
    compare(program, lambda: [torch.arange(6.0).reshape(2, 3) + i for i in range(count)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_types_are_rounded_after_each_operation(dtype: torch.dtype) -> None:
    values = torch.linspace(-3, 3, 257)
    compare(narrow_chain, lambda: [values.to(dtype), values.flip(0).mul(0.37).to(dtype)])


def test_the_multiplication_and_addition_that_dynamo_makes_of_addcmul() -> None:
    def program(x: Tensor, y: Tensor):
        return x.addcmul_(y, y, value=-2)

    x, y = torch.linspace(-3, 3, 257), torch.linspace(1, -2, 257)
    result = torch.compile(program, backend=vllm_ir_xla, fullgraph=True)(x, y)
    assert result is x
    expected = torch.linspace(-3, 3, 257).double() - 2 * y.double() ** 2
    # Two products and a sum, each rounded once, of numbers up to 8.
    torch.testing.assert_close(x.double(), expected, rtol=0.0, atol=3 * 8 * 2.0**-24)
