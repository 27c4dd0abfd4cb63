"""The report on kernels that eager and compiled mode would choose differently."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.frontends.ops import register_op, unregister


@pytest.fixture(scope="module")
def scale() -> Iterator[ir.IrOp]:
    """An op with a kernel that has the bits of the definition, and one that rounds otherwise."""

    @register_op(name="consistency_scale", allow_inplace=True)
    def scale(x: Tensor, by: float = 3.0) -> Tensor:
        return x / by

    @scale.register_impl("same", inplace=True)
    def same(x: Tensor, by: float = 3.0) -> Tensor:
        return x.div_(by)

    @scale.register_impl("rough", supports_args=lambda x, by=3.0: x.dim() == 2)
    def rough(x: Tensor, by: float = 3.0) -> Tensor:
        return x * (1 / by)

    yield scale
    unregister(scale)


def test_each_call_is_listed_with_both_choices_and_the_line(scale: ir.IrOp) -> None:
    def program(x: Tensor) -> Tensor:
        return scale(scale(x) + scale.maybe_inplace(x[0] * 1))

    x = torch.randn(5, 7)
    before = x.clone()
    report = ir.consistency_report(program, x, options={"ir_op_priority": {"consistency_scale": ["rough", "same"]}})
    assert [(choice.eager, choice.compiled) for choice in report.choices] == [
        ("native", "rough"),
        ("native", "same"),
        ("native", "rough"),
    ]
    assert [choice.is_consistent for choice in report.choices] == [False, True, False]
    assert not report.is_consistent
    assert all(f"{__file__}:" in choice.location for choice in report.choices)
    assert 0 < (report.differing[0].difference or 0) < 1e-6
    assert "eager 'native', compiled 'rough', results differ by up to" in str(report)
    assert torch.equal(x, before)


def test_priorities_in_force_count_in_both_modes(scale: ir.IrOp) -> None:
    with scale.set_priority(["rough"]):
        report = ir.consistency_report(lambda x: scale(x), torch.randn(3, 3))
    assert report.is_consistent
    assert [(choice.eager, choice.compiled) for choice in report.choices] == [("rough", "rough")]


def test_without_a_program_every_op_is_tried_on_generated_inputs(scale: ir.IrOp) -> None:
    scale.register_input_generator(lambda size=4: (torch.randn(size, size),))
    report = ir.consistency_report(options={"ir_op_priority": {"consistency_scale": ["rough"]}})
    assert [choice.op for choice in report.differing] == ["consistency_scale"]
    assert {"rms_norm", "silu_and_mul"} < {choice.op for choice in report.choices}


def test_other_backends_are_refused() -> None:
    with pytest.raises(ValueError, match="backend must be 'vllm_ir' or 'vllm_ir_eager', got 'inductor'"):
        ir.consistency_report(backend="inductor")
