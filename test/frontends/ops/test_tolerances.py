"""Tolerances, and the functions that make arguments."""

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import IrOp, RegistrationError


def plus(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@pytest.fixture
def op():
    made = IrOp("tolerances_op", plus)
    yield made
    made.undefine()


def test_tolerances(op: IrOp) -> None:
    assert op.get_tolerance(torch.float32) == {"atol": 1e-5, "rtol": 1.3e-6}
    assert op.get_tolerance(torch.int8) == {"atol": 1, "rtol": 0}
    op.override_tolerance(torch.float32, atol=0.1, rtol=0.2)
    assert op.get_tolerance(torch.float32, 4096) == {"atol": 0.1, "rtol": 0.2}
    assert op.get_tolerance(torch.float16) == {"atol": 1e-3, "rtol": 1e-3}
    with pytest.raises(ValueError, match=r"No tolerance defined for torch.complex64; set one with override_tolerance"):
        op.get_tolerance(torch.complex64)


def test_tolerances_grow_with_the_sum(op: IrOp) -> None:
    n = 1 << 20
    for dtype, roundoff in ((torch.float64, 2.0**-53), (torch.bfloat16, 2.0**-24)):
        short, long = op.get_tolerance(dtype), op.get_tolerance(dtype, n)
        bound = 2 * n * roundoff / (1 - n * roundoff)
        assert long["rtol"] == pytest.approx(short["rtol"] + bound)
        assert long["atol"] == pytest.approx(short["atol"] + bound)
    assert op.get_tolerance(torch.int8, n) == op.get_tolerance(torch.int8)


def test_input_generators(op: IrOp) -> None:
    assert not op.has_input_generator
    with pytest.raises(RuntimeError, match="tolerances_op: No input generator registered"):
        op.generate_inputs()
    with pytest.raises(RegistrationError, match=r"parameters \['n'\] of the input generator .* need defaults"):
        op.register_input_generator(lambda n: ())

    @op.register_input_generator
    def generator(n: int = 4) -> tuple[object, ...]:
        return torch.ones(n, 3), torch.ones(n, 3)

    assert op.has_input_generator
    assert [t.shape for t in op.generate_inputs()] == [(4, 3), (4, 3)]
    assert [t.shape for t in op.generate_inputs(n=2)] == [(2, 3), (2, 3)]
    with pytest.raises(RegistrationError, match=r"two input generators, at .*py:\d+ and at .*py:\d+"):
        op.register_input_generator(generator)


def test_a_generator_gives_a_tuple(op: IrOp) -> None:
    op.register_input_generator(lambda: torch.ones(1))
    with pytest.raises(TypeError, match="the input generator must return a tuple"):
        op.generate_inputs()
