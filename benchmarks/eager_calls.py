"""What a call of an op costs in eager mode, beside the torch operator of the kernel that it chooses.

python benchmarks/eager_calls.py
"""

from __future__ import annotations

import argparse
import sys
import timeit
from collections.abc import Callable, Sequence

import torch

import vllm_ir as ir
from vllm_ir.backends.kernels.cpu import library

CALLS, ROUNDS = 2000, 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Print microseconds of both, the least of several rounds that take turns; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.parse_args(arguments)
    torch.set_num_threads(1)
    x, residual, weight = torch.randn(1, 8), torch.randn(1, 8), torch.randn(8)
    norm, fused = ir.ops.rms_norm, ir.ops.fused_add_rms_norm
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "rms_norm": (
            lambda: library.RMS_NORM(x, weight, 1e-5, None),
            lambda: norm(x, weight, 1e-5, None),
        ),
        "fused_add_rms_norm.maybe_inplace": (
            lambda: library.FUSED_ADD_RMS_NORM_(x, residual, weight, 1e-5, None),
            lambda: fused.maybe_inplace(x, residual, weight, 1e-5, None),
        ),
    }
    with torch.no_grad(), ir.KernelConfig({"rms_norm": ["cpu"], "fused_add_rms_norm": ["cpu"]}).apply():
        for name, (kernel, op) in pairs.items():
            turns = [(_microseconds(kernel), _microseconds(op)) for _ in range(ROUNDS)]
            alone, through = (min(turn[side] for turn in turns) for side in (0, 1))
            print(f"{name}: torch operator {alone:.2f} us, op {through:.2f} us, {through - alone:.2f} us more")
    return 0


def _microseconds(call: Callable[[], object]) -> float:
    return timeit.timeit(call, number=CALLS) / CALLS * 1e6


if __name__ == "__main__":
    sys.exit(main())
