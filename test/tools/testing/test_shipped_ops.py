"""Every implementation that is shipped keeps to its op, and rows of batch-invariant ones to themselves."""

import pytest
import torch

from vllm_ir.backends import kernels
from vllm_ir.frontends.ops import ops
from vllm_ir.tools.testing import check_impl

COLLECTIVES = [name for name in ops if "group_name" in ops[name].parameters]  # tested on process groups
FUSED = [name for name in ops if ops[name].native.__module__.startswith("vllm_ir.frontends.ops.fused_")]
SHIPPED = [
    *("rms_norm", "fused_add_rms_norm", "silu_and_mul", "gelu_and_mul", "rotary_embedding"),
    *(name for name in ops if name.endswith("_quant") and name not in (*FUSED, *COLLECTIVES)),
    *("reshape_and_cache", "concat_and_cache_mla", "paged_attention", "fused_moe"),
]
NATIVE_ONLY = [
    *("silu_mul", "gelu_mul", "apply_rotary", "write_static_cache"),  # models in plain PyTorch become these
    *("mrope_embedding", "gated_rms_norm"),
]


@pytest.mark.parametrize("provider", ["native", "cpu"])
@pytest.mark.parametrize("name", SHIPPED)
def test_it_does_what_the_op_says(name: str, provider: str) -> None:
    assert kernels.cpu.unsupported_reason() is None
    found = check_impl(ops[name], provider)
    assert len(found.accepted) > 30
    assert len(found.refused) < 10


@pytest.mark.parametrize("name", NATIVE_ONLY)
def test_an_op_without_kernels_does_what_it_says(name: str) -> None:
    found = check_impl(ops[name], "native")
    assert len(found.accepted) > 30
    assert len(found.refused) < 10


@pytest.mark.parametrize("name", [name for name in FUSED if "int8" not in name])
def test_a_fused_op_does_what_it_says(name: str) -> None:
    # Not for every dtype: test_fused_ops.py compares all with their parts, which are tested above, bit for bit.
    provider = "cpu" if "cpu" in ops[name].impls else "native"
    found = check_impl(ops[name], provider, dtypes=[torch.bfloat16])
    assert len(found.accepted) > 10
    assert len(found.refused) < 4


def test_no_op_is_left_out() -> None:
    own = {name for name, op in ops.__dict__.items() if op.native.__module__.startswith("vllm_ir.frontends.ops")}
    assert own == {*SHIPPED, *NATIVE_ONLY, *FUSED, *COLLECTIVES}
    assert all(ops[name].has_input_generator for name in own)
