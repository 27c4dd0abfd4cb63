"""Every fusion applies where its operands are computed and its results go on to be used, as in the middle of a model.

`check_fusions` traces `before` by itself, as patterns are traced. What is traced otherwise in a program would not be
noticed there.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import vllm_ir as ir
from vllm_ir.conversions.fuse import FUSED, UNFUSED
from vllm_ir.conversions.fusion.catalog import FUSIONS


@pytest.mark.parametrize("fusion", [pytest.param(fusion, id=fusion.name) for fusion in FUSIONS if fusion.is_supported])
def test_in_the_middle_of_a_program(fusion: ir.Fusion):
    arguments = next(iter(fusion.examples()))
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]

    def program(*inputs: Tensor) -> list[Tensor]:
        computed = iter([x.abs() if x.is_floating_point() else x * 1 for x in inputs])
        results = fusion.before(*(next(computed) if isinstance(a, Tensor) else a for a in arguments))
        return [torch.stack([result, result]) for result in pytree.tree_leaves(results)]

    module = ir.run_passes(ir.import_callable(program, *tensors), "functionalize,eliminate-no-ops,dce")
    ir.run_passes(module, f"fuse{{only={fusion.name} explain=true}}")
    assert FUSED in module.attributes, module.attributes.get(UNFUSED)
