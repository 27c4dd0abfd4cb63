"""Operators that consist of others are traced into what eager mode calls, where PyTorch traces something else."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx

from vllm_ir.frontends.fx.capture import capture_callable

Check = Callable[..., None]


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


PROGRAMS: dict[str, tuple[Callable[[Tensor], object], tuple[int, ...]]] = {
    "dropout that does nothing": (lambda x: F.dropout(x, 0.5, training=False), (3, 4)),
    "dropout": (lambda x: F.dropout(x, 0.5), (3, 4)),
    "interpolation": (lambda x: F.interpolate(x, 7, mode="linear"), (2, 3, 4)),
    "interpolation in bf16": (lambda x: F.interpolate(x.bfloat16(), 7, mode="linear"), (2, 3, 4)),
    "matmul of a vector": (lambda x: x[0, 0] @ x.mT, (5, 10, 8)),
    "C++ that looks at elements": (lambda x: torch.istft(torch.stft(x, 8, return_complex=True), 8), (32,)),
    "a dimension of size 1": (lambda x: F.dropout(x, 0.5, training=False) @ x.mT, (1, 3, 4)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_composite(name: str, check: Check) -> None:
    program, shape = PROGRAMS[name]
    check(program, lambda: (numbers(*shape),))


def targets(program: Callable[[Tensor], object], *inputs: Tensor) -> set[str]:
    nodes = capture_callable(program, *inputs).graph_module.graph.nodes
    return {str(node.target) for node in nodes if node.op == "call_function"}


def test_nothing_is_left_of_what_was_tried() -> None:
    found = targets(lambda x: torch.istft(torch.stft(x, 8, return_complex=True), 8), numbers(32))
    assert not {name for name in found if "equal" in name}


def test_other_traces_are_as_before() -> None:
    def program(x: Tensor) -> Tensor:
        return F.interpolate(x, 7, mode="linear")

    assert targets(program, numbers(2, 3, 4)) == {"aten.upsample_linear1d.default"}
    with enable_python_dispatcher():
        traced = make_fx(program, tracing_mode="fake")(numbers(2, 3, 4))
    assert torch.ops.aten.upsample_linear1d.default not in {node.target for node in traced.graph.nodes}
