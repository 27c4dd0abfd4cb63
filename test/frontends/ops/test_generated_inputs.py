"""Random arguments that come with the ops: shapes, dtypes and seeds."""

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import activations, fused_activation_quant, fused_norm_quant, norms, ops, quantization, rope

FAMILIES = (activations, norms, quantization, rope, fused_norm_quant, fused_activation_quant)
GENERATORS = {
    name: generate
    for family in FAMILIES
    for key, generate in vars(family).items()
    if key.startswith("generate_") and (name := key.removeprefix("generate_").removesuffix("_inputs")) in ops
}
VARIANTS = [
    *((name, {}) for name in GENERATORS),
    ("gelu_and_mul", {"approximate": "tanh"}),
    ("rotary_embedding", {"head_size": 32, "rotary_dim": 16, "is_neox": False}),
    ("dynamic_per_token_scaled_fp8_quant", {"bounded": True}),
    ("per_token_group_fp8_quant", {"group_size": 32, "use_ue8m0": True}),
    ("per_token_group_int8_quant", {"group_size": 16, "epsilon": 0.1}),
]


def test_every_op_of_the_families_has_a_generator() -> None:
    registered = {name for family in FAMILIES for name in vars(family) if name in ops}
    assert set(GENERATORS) == registered
    assert len(registered) == 31


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_generated_arguments(name: str, options: dict[str, object], dtype: torch.dtype) -> None:
    def generate() -> tuple[object, ...]:
        torch.manual_seed(0)
        return GENERATORS[name](num_tokens=5, hidden_size=64, dtype=dtype, **options)

    args = generate()
    assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(args, generate(), strict=True))
    assert dtype in {arg.dtype for arg in args if isinstance(arg, Tensor)}
    results = ops[name](*args)
    assert (results if isinstance(results, Tensor) else results[0]).shape == (5, 64)


@pytest.mark.parametrize("name", GENERATORS)
def test_arguments_without_options(name: str) -> None:
    results = ops[name](*GENERATORS[name]())
    assert (results if isinstance(results, Tensor) else results[0]).shape == (32, 128)
