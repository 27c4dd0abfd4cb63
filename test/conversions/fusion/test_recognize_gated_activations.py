"""SwiGLU and GeGLU, as halves of one projection and as two, become gated activations."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.activations import ACT2FN

DTYPES = (torch.float32, torch.bfloat16)
EXACT = {"silu": "silu_mul", "gelu": "gelu_mul", "gelu_pytorch_tanh": "gelu_mul"}
SPLITS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "chunk": lambda x: x.chunk(2, -1),
    "split": lambda x: x.split(16, -1),
    "split of sizes": lambda x: x.split([16, 16], -1),
    "slices": lambda x: (x[..., :16], x[..., 16:]),
}


def pair(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 16).to(dtype), torch.randn(2, 3, 16).to(dtype)


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", EXACT)
def test_two_projections(raised, activation: str, dtype: torch.dtype, decompose: bool):
    found = raised(lambda gate, up: ACT2FN[activation](gate) * up, *pair(dtype), decompose=decompose)
    assert found.fusions == {f"recognize_{EXACT[activation]}": 1}


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("name", SPLITS)
def test_halves_of_one_projection(raised, name: str, decompose: bool):
    def silu(x: Tensor) -> Tensor:
        gate, up = SPLITS[name](x)
        return up * F.silu(gate)

    def gelu(x: Tensor) -> Tensor:
        gate, up = SPLITS[name](x)
        return F.gelu(gate, approximate="tanh") * up

    for function, op in (silu, "silu_and_mul"), (gelu, "gelu_and_mul"):
        found = raised(function, torch.randn(3, 32).bfloat16(), decompose=decompose)
        assert found.fusions == {f"recognize_{op}": 1}
        assert len(list(found.module.walk())) == 4  # the op, the return, function and module


def test_the_form_of_gelu_is_kept(raised):
    for form in ("none", "tanh"):
        found = raised(lambda gate, up, form=form: F.gelu(gate, approximate=form) * up, *pair())
        assert f'approximate = "{form}"' in str(found.module)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gelu_in_steps_is_the_approximation_but_for_rounding(raised, dtype: torch.dtype):
    """T5's "gelu_new" rounds each step, to 16 bits where these are its dtype."""

    def gated(gate: Tensor, up: Tensor) -> Tensor:
        return ACT2FN["gelu_new"](gate) * up

    assert raised(gated, *pair(dtype)).fusions == {}
    wide = dtype is torch.float32
    assert raised(gated, *pair(dtype), numerics="changed").fusions == {"recognize_gelu_mul_by_steps": 1}
    reordered = raised(gated, *pair(dtype), numerics="reordered")
    assert reordered.fusions == ({"recognize_gelu_mul_by_steps": 1} if wide else {})


def test_the_second_half_as_gate_is_not_the_op_of_halves(raised):
    def gated(x: Tensor) -> Tensor:
        up, gate = x.chunk(2, -1)
        return F.silu(gate) * up

    assert raised(gated, torch.randn(3, 32)).fusions == {"recognize_silu_mul": 1}


def test_pieces_that_are_no_halves_stay(raised):
    found = raised(lambda x: F.silu(x[..., :16]) * x[..., 8:24], torch.randn(3, 32), only="recognize_silu_and_mul")
    assert found.fusions == {}
    assert "argument 2 is 8, the pattern has 16" in found.reasons


def test_an_activation_that_is_used_elsewhere_stays(raised):
    def gated(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        activated = F.silu(gate)
        return activated * up, activated.neg()

    found = raised(gated, *pair(), only="recognize_silu_mul")
    assert found.fusions == {}
    assert "is also used by" in found.reasons


def test_factors_of_another_shape_or_dtype_stay(raised):
    gate, up = pair(torch.bfloat16)
    for other in (up.float(), up[..., :1]):
        found = raised(lambda gate, up: F.silu(gate) * up, gate, other, only="recognize_silu_mul")
        assert found.fusions == {}
        assert "vllm_ir.silu_mul: up must be torch.bfloat16 of shape [2, 3, 16], like gate" in found.reasons


def test_the_product_of_a_tensor_with_its_own_activation(raised):
    assert raised(lambda x: F.silu(x) * x, pair()[0]).fusions == {"recognize_silu_mul": 1}
