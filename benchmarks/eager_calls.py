"""What a call of an op costs in eager mode, beside the torch operator of the kernel that it chooses.

python benchmarks/eager_calls.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import timeit
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

import vllm_ir as ir
from vllm_ir.backends.kernels.cpu import library
from vllm_ir.frontends.ops import enable_torch_wrap

CALLS, ROUNDS = 100, 300

SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "gradients on": torch.enable_grad,
    "gradients off": torch.no_grad,
    "without torch operator of the op": lambda: enable_torch_wrap(False),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print microseconds of both, of many short rounds that take turns; returns the exit status.

    The least is what it costs where nothing else runs on the core. The median says how noisy the machine was.
    """
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
    with ir.KernelConfig({"rms_norm": ["cpu"], "fused_add_rms_norm": ["cpu"]}).apply():
        for name, (kernel, op) in pairs.items():
            for described, setting in SETTINGS.items():
                with setting():
                    print(f"{name}, {described}: {_compared(kernel, op)}")
    return 0


def _compared(kernel: Callable[[], object], op: Callable[[], object]) -> str:
    turns = [(_microseconds(kernel), _microseconds(op)) for _ in range(ROUNDS)]
    alone, through = (min(turn[side] for turn in turns) for side in (0, 1))
    median = statistics.median(turn[1] - turn[0] for turn in turns)
    return f"torch operator {alone:.2f} us, op {through:.2f} us, {through - alone:.2f} us more (median {median:.2f} us)"


def _microseconds(call: Callable[[], object]) -> float:
    return timeit.timeit(call, number=CALLS) / CALLS * 1e6


if __name__ == "__main__":
    sys.exit(main())
