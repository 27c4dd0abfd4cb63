"""Kernels for `device_kernels.mlir`."""

from torch import Tensor

import vllm_ir as ir


def _write(cache: Tensor, rows: Tensor, scale: float) -> Tensor:
    cache[: rows.shape[0]] = rows * scale
    return cache


ir.device_kernel("lit_write", {0: 0}, _write)
