"""What fusions cost: bringing them in, finding nothing, and fusing everything in a graph of 80 layers.

python benchmarks/fusion.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

import vllm_ir as ir

HIDDEN, TOKENS, LAYERS = 64, 8, 80
_IMPORTING = """
import gc, time
from vllm_ir.conversions.fusion.library import library_of
from vllm_ir.conversions.fusion.scope import fusions_named
from vllm_ir.tools import providers
gc.disable()  # as while passes run
start = time.process_time()
fusions = fusions_named(())
library_of(fusions, False)
print(len(fusions), (time.process_time() - start) * 1e3)
"""


def fusable(x: Tensor, residual: Tensor, weight: Tensor, matrix: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Layers of which all but the products is fused: sum, norm and quantisation; gated activation and quantisation."""
    for _ in range(LAYERS):
        residual = x + residual
        normed = ir.ops.rms_norm(residual, weight, 1e-6)
        narrow = ir.ops.static_scaled_fp8_quant(normed, scale)
        wide = narrow.to(torch.float32) @ matrix
        x = ir.ops.static_scaled_fp8_quant(ir.ops.silu_and_mul(wide), scale).to(torch.float32)
    return x, residual


def unlike(x: Tensor, residual: Tensor, weight: Tensor, matrix: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Layers of the same operators in an order that no fusion has, and others beside them."""
    for _ in range(LAYERS):
        normed = ir.ops.rms_norm(x, weight, 1e-6)
        residual = normed - residual
        wide = residual @ matrix
        gate, up = wide.chunk(2, -1)
        x = torch.tanh(gate) * 2 - up.clamp(-1, 1)
        x = x * (x.mean(-1, keepdim=True) + 1)
    return x, residual + scale


def main(arguments: Sequence[str] | None = None) -> int:
    """Print milliseconds and microseconds of processor time; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.parse_args(arguments)
    run = subprocess.run([sys.executable, "-c", _IMPORTING], capture_output=True, text=True, check=True)
    count, milliseconds = run.stdout.split()
    print(f"{count} fusions brought in and put in order: {float(milliseconds):.1f} ms, once in a process")
    for name, program in (("nothing is fused", unlike), ("all is fused", fusable)):
        _measure(name, program)
    return 0


def _measure(name: str, program: Callable[..., object]) -> None:
    sizes = ((TOKENS, HIDDEN), (TOKENS, HIDDEN), (HIDDEN,), (HIDDEN, 2 * HIDDEN), (1,))
    module = ir.run_passes(ir.import_callable(program, *(torch.rand(size) for size in sizes)), "functionalize")
    nodes = sum(1 for _ in module.walk()) - 3
    first, *later = (_seconds(module.clone()) for _ in range(8))
    matching = min(_seconds(module.clone(), "fuse{limit=0}") for _ in range(8))
    fused = module.clone()
    ir.run_passes(fused, "fuse", check=False)
    left = sum(1 for _ in fused.walk()) - 3
    print(
        f"{name}: {nodes} operations become {left}; the first time {first * 1e3:.0f} ms with tracing of patterns, then "
        f"{min(later) * 1e3:.1f} ms, {min(later) / nodes * 1e6:.1f} us per operation, "
        f"of which {matching / nodes * 1e6:.1f} us are matching"
    )


def _seconds(module: ModuleOp, passes: str = "fuse") -> float:
    start = time.process_time()
    ir.run_passes(module, passes, check=False)
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
