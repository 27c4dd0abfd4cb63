"""Providers for `lower_results.mlir` whose results are not always those of the op."""

from torch import Tensor

import vllm_ir as ir


@ir.ops.rms_norm.register_impl("wide")
def _(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    return ir.ops.rms_norm.native(x, weight, epsilon, variance_size).double()
