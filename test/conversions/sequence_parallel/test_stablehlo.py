"""Scattered sums in StableHLO, with replica groups, on simulated processes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

pytest.importorskip("xdsl_jax", reason="needs the extra stablehlo")

import vllm_ir as ir
from vllm_ir.backends.interpreter.stablehlo.interpret import interpret_processes
from vllm_ir.frontends.distributed.module_groups import attach_replica_groups
from vllm_ir.frontends.ops import ops

TILES = [[0, 2], [1, 3]]
PASSES = "alias-outputs,functionalize,{}lower,convert-to-stablehlo"


def program(x: Tensor, matrix: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    residual = ops.all_reduce(x, "tp")
    x = ops.rms_norm(residual, weight, 1e-5)
    x, residual = ops.fused_add_rms_norm(ops.all_reduce(x @ matrix, "tp"), residual, weight, 1e-5)
    x, _ = ops.fused_add_rms_norm(ops.all_reduce(x @ matrix, "tp"), residual, weight, 1e-5)
    return ops.dynamic_per_token_scaled_fp8_quant(x)


def converted(inputs: list[Tensor], passes: str) -> ModuleOp:
    module = ir.import_callable(program, *inputs)
    attach_replica_groups(module, {"tp": TILES})
    ir.run_passes(module, PASSES.format(passes), verify_each=True)
    return module


@pytest.mark.parametrize(
    ("rows", "passes"),
    [(4, "sequence-parallel{require=3},"), (3, "sequence-parallel{pad=true require=3},")],
)
def test_same_bits(rows: int, passes: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(8, generator=generator)
    inputs = [
        [torch.randn(rows, 8, generator=generator), torch.randn(8, 8, generator=generator), weight] for _ in range(4)
    ]
    module = converted(inputs[0], passes)
    text = str(module)
    assert (text.count('"stablehlo.reduce_scatter"'), text.count('"stablehlo.all_gather"')) == (3, 4)
    assert '"stablehlo.all_reduce"' not in text
    assert text.count("dense<[[0, 2], [1, 3]]>") == 7
    found, expected = (interpret_processes(part, inputs) for part in (module, converted(inputs[0], "")))
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(_tensors(ours), _tensors(theirs), strict=True):
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def fused(x: Tensor, matrix: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    residual = ops.all_reduce_rms_norm(x, weight, 1e-5, "tp")
    return ops.all_reduce_fused_add_rms_norm(x @ matrix, residual, weight, 1e-5, "tp")


@pytest.mark.parametrize("function", [program, fused], ids=lambda function: function.__name__)
def test_ops_that_were_not_lowered(function: Callable[..., object]) -> None:
    """Their definitions name the groups of the module that they are in."""
    inputs = [[torch.randn(4, 8), torch.randn(8, 8), torch.randn(8)] for _ in range(4)]
    modules = [ir.import_callable(function, *inputs[0]) for _ in range(2)]
    for module, lower in zip(modules, ("", "lower,"), strict=True):
        attach_replica_groups(module, {"tp": TILES})
        ir.run_passes(module, f"alias-outputs,functionalize,{lower}convert-to-stablehlo")
    found, expected = (interpret_processes(module, inputs) for module in modules)
    assert str(modules[0]).count("dense<[[0, 2], [1, 3]]>") == str(modules[1]).count("dense<[[0, 2], [1, 3]]>") > 1
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(_tensors(ours), _tensors(theirs), strict=True):
            assert torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def test_a_group_that_the_module_says_nothing_of() -> None:
    module = ir.import_callable(fused, torch.randn(4, 8), torch.randn(8, 8), torch.randn(8))
    reason = (
        r"vllm_ir.all_reduce_rms_norm: .*group 'tp' has no replica groups in vllm_ir.replica_groups; resolve them on"
    )
    with pytest.raises(PassFailedException, match=reason):
        ir.run_passes(module, "alias-outputs,functionalize,convert-to-stablehlo")


def _tensors(result: object) -> list[Tensor]:
    assert isinstance(result, tuple | list)
    return [item for item in result if isinstance(item, Tensor)]
