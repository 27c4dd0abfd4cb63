"""Every limit of rewrites leaves a valid module of the same results."""

import numpy as np
import pytest

from vllm_ir.backends.interpreter.stablehlo.evaluate import evaluate
from vllm_ir.tools.pipelines import build_passes
from vllm_ir.tools.text import text_context


def narrowed(module, spec):
    """A clone of the module behind the pass, and how many rewrites there were."""
    (entry,) = build_passes(spec)
    clone = module.clone()
    entry.apply(text_context(), clone)
    clone.verify()
    return clone, entry.rewrites.done


def check(modules, seed, programs):
    module, _ = modules.random_module(seed, programs)
    arrays = modules.arguments(module, seed)
    expected = evaluate(module, arrays, whole_windows=True)
    full, count = narrowed(module, "narrow-updates")
    assert count > programs
    for limit in range(count + 2):
        after, done = narrowed(module, f"narrow-updates{{limit={limit}}}")
        assert done == min(limit, count)
        if limit == 0:
            assert str(after) == str(module)
        if limit >= count:
            assert str(after) == str(full)
        for result, value in zip(evaluate(after, arrays, whole_windows=True), expected, strict=True):
            np.testing.assert_array_equal(result, value, err_msg=f"module {seed}, limit {limit} of {count}")


@pytest.mark.parametrize("seed", range(3))
def test_every_limit(modules, seed: int) -> None:
    check(modules, seed, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_every_limit_of_many_modules(modules, seed: int) -> None:
    check(modules, seed, 8)
