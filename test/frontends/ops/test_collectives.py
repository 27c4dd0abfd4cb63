"""The collectives' native definitions on ranks that are threads, with fake tensors, and what they refuse.

Real ranks are in `test/backends/kernels/test_cpu_collectives.py`.
"""

from collections.abc import Callable
from inspect import signature

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from xdsl.dialects.builtin import ModuleOp

import vllm_ir as ir
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.collective_norms import BEHIND_SUM
from vllm_ir.frontends.ops.collectives import (
    generate_all_gather_inputs,
    generate_all_reduce_inputs,
    generate_reduce_scatter_inputs,
)

RANKS = 3
DIMS = [0, 1, 2, -1, -2, -3]
SHAPE = (3, 6, 9)


def inputs() -> list[Tensor]:
    return [torch.randint(-9, 9, SHAPE, generator=torch.Generator().manual_seed(rank)).float() for rank in range(RANKS)]


def lowered(program: Callable[[Tensor], object], passes: str = "functionalize,lower") -> ModuleOp:
    """The program with its collectives as torch's, by way of its text."""
    module = ir.parse(str(ir.import_callable(program, torch.empty(SHAPE))))
    ir.run_passes(module, passes)
    module.verify()
    return ir.parse(str(module))


def on_ranks(program: Callable[[Tensor], object]) -> list[Tensor]:
    module = lowered(program)
    assert "_c10d_functional" in str(module)
    return ir.interpret_ranks(module, [[value] for value in inputs()])


def test_all_reduce() -> None:
    for got in on_ranks(lambda x: ops.all_reduce(x, "world")):
        assert torch.equal(got, sum(inputs()))


@pytest.mark.parametrize("dim", DIMS)
def test_reduce_scatter(dim: int) -> None:
    pieces = sum(inputs()).chunk(RANKS, dim)
    assert all(map(torch.equal, on_ranks(lambda x: ops.reduce_scatter(x, dim, RANKS, "world")), pieces))


@pytest.mark.parametrize("dim", DIMS)
def test_all_gather(dim: int) -> None:
    for got in on_ranks(lambda x: ops.all_gather(x, dim, RANKS, "world")):
        assert torch.equal(got, torch.cat(inputs(), dim))


def test_a_piece_gathered_again_is_the_sum() -> None:
    def program(x: Tensor) -> Tensor:
        return ops.all_gather(ops.reduce_scatter(x.mT, -1, RANKS, "world"), -1, RANKS, "world")

    for got in on_ranks(program):
        assert torch.equal(got, sum(inputs()).mT)


def test_the_text_names_the_group() -> None:
    module = ir.import_callable(lambda x: ops.all_gather(x, 1, RANKS, "tp:0"), torch.empty(SHAPE))
    assert '"vllm_ir.all_gather"(%x) <{dim = 1 : i64, world_size = 3 : i64, group_name = "tp:0"}>' in str(module)


@pytest.mark.parametrize("changed", [lambda x: x, lambda x: x.mT, lambda x: x[:, ::2]], ids=["rows", "turned", "gaps"])
@pytest.mark.parametrize("dim", DIMS)
def test_metadata_without_data(dim: int, changed: Callable[[Tensor], Tensor]) -> None:
    with FakeTensorMode():
        x = changed(torch.empty(SHAPE))
        shapes = [list(x.shape) for _ in range(3)]
        shapes[1][dim] //= RANKS
        shapes[2][dim] *= RANKS
        results = [
            ops.all_reduce(x, "world"),
            ops.reduce_scatter(x, dim, RANKS, "world"),
            ops.all_gather(x, dim, RANKS, "world"),
        ]
        assert [list(result.shape) for result in results] == shapes
        assert all(result.is_contiguous() for result in results[1:])


def test_generated_arguments() -> None:
    assert [type(part) for part in generate_all_reduce_inputs(3)] == [Tensor, str]
    x, dim, world_size, _ = generate_reduce_scatter_inputs(5, dim=0, world_size=4, dtype=torch.float16)
    assert (x.shape, x.dtype, dim, world_size) == ((8, 64), torch.float16, 0, 4)
    x, *_ = generate_reduce_scatter_inputs(5, 9, dim=-1, world_size=4)
    assert x.shape == (5, 12)
    x, *others = generate_all_gather_inputs(5, 9, dim=1, world_size=4, group_name="tp")
    assert (x.shape, others) == ((5, 9), [1, 4, "tp"])


X = torch.zeros(4, 6)
REFUSED = [
    (lambda: ops.reduce_scatter(X, 2, 2, "0"), r"reduce_scatter: dim 2 is no dimension of x, which has shape \[4, 6\]"),
    (lambda: ops.reduce_scatter(X, -3, 2, "0"), "reduce_scatter: dim -3 is no dimension"),
    (lambda: ops.reduce_scatter(X, -1, 4, "0"), r"dimension 1 of x must be a multiple of world_size 4, got.*\[4, 6\]"),
    (lambda: ops.reduce_scatter(X, 0, 0, "0"), "reduce_scatter: world_size must be positive, got 0"),
    (lambda: ops.all_gather(X, 2, 2, "0"), r"all_gather: dim 2 is no dimension of x, which has shape \[4, 6\]"),
    (lambda: ops.all_gather(torch.tensor(1.0), 0, 2, "0"), r"all_gather: dim 0 is no dimension.*shape \[\]"),
    (lambda: ops.all_gather(X, 0, -1, "0"), "all_gather: world_size must be positive, got -1"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refused_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^vllm_ir\..*{message}") as caught:
        call()
    assert "\n" not in str(caught.value)


NORMS = [
    (lambda x: ops.all_reduce_rms_norm(x, x[0, :5], 1e-5, "0"), r"all_reduce_rms_norm: weight must have shape \[6\]"),
    (
        lambda x: ops.all_reduce_rms_norm(x, None, 1e-5, "0", 7),
        r"all_reduce_rms_norm: variance_size 7 is not in \[1, 6\]",
    ),
    (
        lambda x: ops.all_reduce_fused_add_rms_norm(x, x[:1], None, 1e-5, "0", rounded_last=True),
        r"all_reduce_fused_add_rms_norm: x_residual must be floating of shape \[4, 6\]",
    ),
    (
        lambda x: ops.all_reduce_rms_norm_static_fp8_quant(x, None, x[0], 1e-5, "0"),
        "all_reduce_rms_norm_static_fp8_quant: scale must",
    ),
    (
        lambda x: ops.all_reduce_fused_add_rms_norm_static_fp8_quant(x, x, None, x[0], 1e-5, "0"),
        "all_reduce_fused_add_rms_norm_static_fp8_quant: scale must",
    ),
]


@pytest.mark.parametrize(("call", "message"), NORMS)
def test_refused_arguments_of_norms(call: Callable[[Tensor], object], message: str) -> None:
    with FakeTensorMode(), pytest.raises(ValueError, match=rf"^vllm_ir\.{message}"):
        call(torch.empty(4, 6))


def test_parts_have_the_other_arguments_by_name() -> None:
    """What puts the parts in the place of such an op relies on it."""
    for name, behind in BEHIND_SUM.items():
        parameters = behind.parameters if isinstance(behind, ir.IrOp) else signature(behind).parameters
        assert [*parameters] == [parameter for parameter in ops[name].parameters if parameter != "group_name"]


def test_a_group_that_there_is_not() -> None:
    with pytest.raises(RuntimeError, match="Could not resolve the process group registered under the name nobody"):
        ops.all_reduce(X, "nobody")
