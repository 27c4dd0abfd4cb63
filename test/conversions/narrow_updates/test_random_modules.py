"""Random modules give the same before and behind the pass: on XLA, and, many more of them, by the evaluator."""

import numpy as np
import pytest

import vllm_ir as ir
from vllm_ir.backends.interpreter.stablehlo.evaluate import evaluate
from vllm_ir.dialects.stablehlo import DynamicUpdateSliceOp, ScatterOp


def updates(module):
    return sum(isinstance(op, DynamicUpdateSliceOp | ScatterOp) for op in module.walk())


def evaluated(module, arrays):
    """Results where a window that does not fit is left out as a whole, as XLA has it, and the pass keeps it."""
    return evaluate(module, arrays, whole_windows=True)


def compare(owners, results, expected, seed):
    for owner, result, value in zip(owners, results, expected, strict=True):
        np.testing.assert_array_equal(result, value, err_msg=f"module {seed}, program {owner}")


@pytest.mark.parametrize("seed", range(8))
def test_the_evaluator_gives_the_same(seed: int, modules):
    module, owners = modules.random_module(seed, 40)
    arrays, before = modules.arguments(module, seed), updates(module)
    expected = evaluated(module, arrays)
    ir.run_passes(module, "narrow-updates")
    module.verify()
    assert updates(module) < 0.75 * before
    compare(owners, evaluated(module, arrays), expected, seed)


def test_xla_gives_the_same(xla, modules):
    module, owners = modules.random_module(100, 25)
    text, arrays = str(module), modules.arguments(module, 100)
    compare(owners, evaluated(module, arrays), expected := xla.execute(text, arrays), 100)
    ir.run_passes(module, "narrow-updates")
    compare(owners, xla.execute(str(module), arrays), expected, 100)
