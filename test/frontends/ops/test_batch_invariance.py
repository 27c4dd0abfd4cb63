"""Only implementations that are declared batch-invariant run where that is asked for."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.ops import ops, register_op
from vllm_ir.frontends.ops.priority import BATCH_VARIABLE, only_batch_invariant


@register_op
def invariance_op(x: Tensor) -> Tensor:
    return x + 1


@invariance_op.register_impl("fast")
def fast(x: Tensor) -> Tensor:
    return x + 100


@invariance_op.register_impl("steady", batch_invariant=True, supports_args=lambda x: x.dim() == 1)
def steady(x: Tensor) -> Tensor:
    return x + 200


ONE = torch.zeros(1)


def test_eager_calls() -> None:
    with invariance_op.set_priority(["fast"]):
        assert invariance_op(ONE).item() == 100
        with only_batch_invariant():
            assert invariance_op(ONE).item() == 200
            with only_batch_invariant(False):
                assert invariance_op(ONE).item() == 100
            impl, rejected = invariance_op.select([ONE])
            assert (impl.provider, rejected) == ("steady", [("fast", "it is not declared batch-invariant")])
            with pytest.raises(RuntimeError, match=r"invariance_op: no implementation may run: 'fast': it is not decl"):
                invariance_op(torch.zeros(1, 1))
        assert invariance_op(ONE).item() == 100
    assert only_invariant_native().provider == "native"


def only_invariant_native():
    with only_batch_invariant():
        return ops.static_scaled_int8_quant.dispatch(torch.ones(2, 2, dtype=torch.float64), torch.ones(1))


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
def test_compiled(backend: str) -> None:
    def run(**options: object) -> float:
        torch._dynamo.reset()
        options["ir_op_priority"] = {"invariance_op": ["fast"]}
        compiled = torch.compile(lambda x: invariance_op(x), backend=backend, fullgraph=True, options=options)
        return compiled(ONE).item()

    assert run() == 100
    assert run(batch_invariant=True) == 200
    with only_batch_invariant():
        assert run() == 200
        assert run(batch_invariant=False) == 100
    with pytest.raises(Exception, match="option batch_invariant must be True to choose only"):
        run(batch_invariant="yes")


@pytest.mark.parametrize(("value", "provider"), [("1", "cpu"), ("0", "native"), ("", "native")])
def test_the_environment_asks_for_it(value: str, provider: str) -> None:
    code = "import torch, vllm_ir as ir; print(ir.ops.rms_norm.dispatch(torch.ones(2, 8), None, 1e-5).provider)"
    environment = {**os.environ, BATCH_VARIABLE: value}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.split() == [provider]
