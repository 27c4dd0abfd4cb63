"""Fusions with collectives: on any group, in their order among other collectives, with the same bits on all ranks."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

import vllm_ir as ir
from vllm_ir.conversions.fuse import FUSED, UNFUSED

functional = torch.ops._c10d_functional
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
X = torch.randn(4, 16)


def by_torch(x: Tensor, group: str) -> Tensor:
    return functional.wait_tensor(functional.all_reduce(x, "sum", group))


def in_place(x: Tensor, group: str) -> Tensor:
    sent = x.clone()
    return functional.wait_tensor(functional.all_reduce_(sent, "sum", group))


def gemma(x: Tensor, weight: Tensor) -> Tensor:
    values = x.float()
    normed = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + 2.0**-20)
    return (normed * (1.0 + weight.float())).type_as(x)


def layers(x: Tensor, matrix: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """Each form once: sums by all spellings, residuals on both sides, norms that are rounded last, quantisation."""
    x = ir.ops.rms_norm(ir.ops.all_reduce(x @ matrix, "a"), weight, 1e-6)
    x, residual = ir.ops.fused_add_rms_norm(by_torch(x @ matrix, "b"), residual, weight, 1e-5)
    x, residual = ir.ops.fused_add_rms_norm(residual, in_place(x @ matrix, "a"), None, 1e-5)
    x = gemma(by_torch(x @ matrix, "b"), weight)
    residual = residual + ir.ops.all_reduce(x @ matrix, "a")
    x, residual = ir.ops.fused_add_rms_norm(by_torch(gemma(residual, weight) @ matrix, "a"), residual, weight, 1e-5)
    quantised = ir.ops.static_scaled_fp8_quant(x, weight.float()[:1].abs() + 0.01)
    return x, residual, quantised


def quantised(x: Tensor, matrix: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    scale = weight.float()[:1].abs() + 0.01
    x, residual = ir.ops.fused_add_rms_norm(by_torch(x @ matrix, "b"), residual, weight, 1e-5)
    first = ir.ops.static_scaled_fp8_quant(x, scale)
    y, _ = ir.ops.fused_add_rms_norm(ir.ops.all_reduce(residual @ matrix, "a"), residual, weight, 1e-5)
    second = ir.ops.static_scaled_fp8_quant(y, scale)
    normed = ir.ops.rms_norm(in_place(residual * 2, "a"), weight, 1e-5)
    return first, second, ir.ops.static_scaled_fp8_quant(normed, scale)


def _on_ranks(module: ModuleOp, inputs: list[list[Tensor]]) -> list[list[Tensor]]:
    lowered = ir.run_passes(module.clone(), "lower")
    return [list(result) for result in ir.interpret_ranks(lowered, [[x.clone() for x in given] for given in inputs])]


def _bits(results: list[list[Tensor]]) -> list[list[list[int]]]:
    return [[result.contiguous().view(torch.uint8).flatten().tolist() for result in given] for given in results]


EXPECTED = {
    layers: {"all_reduce_rms_norm": 4, "all_reduce_rms_norm_rounded_last": 2, "recognize_rms_norm_rounded_last": 2},
    quantised: {"all_reduce_rms_norm_static_quant": 3},
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("program", EXPECTED, ids=lambda program: program.__name__)
def test_fused_ops_have_the_bits_of_their_parts(program: Callable[..., object], ranks: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(ranks)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    shared = [drawn(4, 16), drawn(16)]
    inputs = [[drawn(4, 16), drawn(16, 16), *shared] for _ in range(ranks)]
    module = ir.run_passes(ir.import_callable(program, *inputs[0]), "functionalize")
    fused = ir.run_passes(module.clone(), "fuse{numerics=exact}")
    expected = dict(EXPECTED[program])
    if dtype is torch.float32 and program is layers:
        # Nothing is rounded: Gemma's norm is the usual one, and a sum that is added is one that is normalised as it is.
        expected = {"all_reduce_rms_norm": 6, "recognize_rms_norm": 2, "add_rms_norm": 1}
    assert {name: len(places.data) for name, places in fused.attributes[FUSED].data.items()} == expected
    assert "all_reduce(" not in str(fused).replace("_all_reduce", "")
    assert "_c10d_functional" not in str(fused)
    assert _bits(_on_ranks(fused, inputs)) == _bits(_on_ranks(module, inputs))


def fused(function: Callable[..., object], fusion: ir.Fusion) -> tuple[int, str]:
    """How often a fusion was applied, and why not elsewhere."""
    module = ir.run_passes(ir.import_callable(function, X), "functionalize")
    with ir.using_fusions(fusion):
        ir.run_passes(module, f"fuse{{only={fusion.name} explain=true}}")
    module.verify()
    found = module.attributes.get(FUSED)
    return (len(found.data[fusion.name].data) if found else 0), str(module.attributes.get(UNFUSED, ""))


def before(x: Tensor, group: str) -> Tensor:
    return ir.ops.all_reduce(x, group) * 2


def after(x: Tensor, group: str) -> Tensor:
    return ir.ops.all_reduce(x * 2, group)


def other(x: Tensor) -> Tensor:
    return ir.ops.all_reduce(x, "other") * 2


def test_a_string_may_be_any() -> None:
    assert fused(other, ir.Fusion("twice", before, after, lambda: [(X, ir.AnyString("tp"))]))[0] == 1
    count, reasons = fused(other, ir.Fusion("twice", before, after, lambda: [(X, "tp")]))
    assert count == 0
    assert "argument group_name is \\22other\\22, the pattern has \\22tp\\22" in reasons


def test_a_string_that_nothing_has() -> None:
    unused = ir.Fusion("unused", lambda x, _: torch.sin(x), lambda x, _: torch.cos(x), lambda: [(X, ir.AnyString("a"))])
    with pytest.raises(ValueError, match=r"fusion 'unused': argument 1 is 'a', which no operation of before has"):
        fused(torch.sin, unused)


def test_checks_run_collectives(tmp_path: Path) -> None:
    examples = lambda: [(X, ir.AnyString("tp"))]  # noqa: E731
    right = ir.Fusion("right", before, after, examples)
    wrong = ir.Fusion("wrong", before, lambda x, group: ir.ops.all_reduce(x, group) * 3, examples)
    found = ir.check_fusions([right, wrong], directory=tmp_path)
    assert (found[0].problem, found[0].programs, found[0].exact) == (None, 2, 2)
    assert "elements differ" in str(found[1].problem)


SIDES: list[tuple[Callable[..., object], str]] = [
    (lambda x, _: ir.ops.all_reduce(x * 2, "mine"), "before has collectives of groups ['other'], after of ['mine']"),
    (lambda x, _: x * 2, "before has collectives of groups ['other'], after of none"),
    (lambda x, group: ir.ops.all_reduce(after(x, group), group), "after of ['other', 'other']"),
]


@pytest.mark.parametrize(("changed", "reason"), SIDES, ids=[reason[-18:] for _, reason in SIDES])
def test_both_sides_have_the_same_collectives(changed: Callable[..., object], reason: str) -> None:
    count, reasons = fused(other, ir.Fusion("changed", before, changed, lambda: [(X, ir.AnyString("tp"))]))
    assert count == 0
    assert reason in reasons


def test_a_collective_stays_where_it_is() -> None:
    def early(reduced: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
        def program(x: Tensor) -> tuple[Tensor, ...]:
            sine = torch.sin(x)
            total = reduced(sine)  # would have to move behind what takes the place of the sum below
            return torch.cos(sine) + torch.exp(x), total, sine

        return program

    def sums(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        sine = torch.sin(x)
        return torch.cos(sine) + y, sine

    late = ir.Fusion("late", sums, lambda x, y: (sums(x, y)[0], torch.sin(x)), lambda: [(X, X)])
    assert fused(early(torch.relu), late)[0] == 1
    count, reasons = fused(early(lambda x: ir.ops.all_reduce(x, "a")), late)
    assert count == 0
    assert "vllm_ir.all_reduce: it uses a result, comes before the last operand, and cannot move" in reasons


def test_the_same_string_everywhere() -> None:
    both = ir.Fusion(
        "both",
        lambda x, group: ir.ops.all_reduce(torch.sin(ir.ops.all_reduce(x, group)), group),
        lambda x, group: ir.ops.all_reduce(torch.sin(ir.ops.all_reduce(x * 1, group)), group),
        lambda: [(X, ir.AnyString("tp"))],
    )
    assert fused(lambda x: ir.ops.all_reduce(torch.sin(ir.ops.all_reduce(x, "a")), "a"), both)[0] == 1
    count, reasons = fused(lambda x: ir.ops.all_reduce(torch.sin(ir.ops.all_reduce(x, "a")), "b"), both)
    assert count == 0
    assert "argument group_name" in reasons
