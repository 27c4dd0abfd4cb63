"""Every implementation that is shipped keeps to its op, and rows of batch-invariant ones to themselves."""

import pytest

from vllm_ir.backends import kernels
from vllm_ir.frontends.ops import ops
from vllm_ir.tools.testing import check_impl

SHIPPED = [
    *("rms_norm", "fused_add_rms_norm", "silu_and_mul", "gelu_and_mul", "rotary_embedding"),
    *(name for name in ops if name.endswith("_quant")),
    *("reshape_and_cache", "paged_attention", "fused_moe"),
]
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter"]  # tested on process groups


@pytest.mark.parametrize("provider", ["native", "cpu"])
@pytest.mark.parametrize("name", SHIPPED)
def test_it_does_what_the_op_says(name: str, provider: str) -> None:
    assert kernels.cpu.unsupported_reason() is None
    found = check_impl(ops[name], provider)
    assert len(found.accepted) > 30
    assert len(found.refused) < 10


def test_no_op_is_left_out() -> None:
    own = {name for name, op in ops.__dict__.items() if op.native.__module__.startswith("vllm_ir.frontends.ops")}
    assert own == {*SHIPPED, *COLLECTIVES}
    assert all(ops[name].has_input_generator for name in own)
