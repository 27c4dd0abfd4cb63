"""Time of the C++ kernels and of the native definitions, both in eager mode, in one run.

    python benchmarks/kernels.py [--rows 1 64 512] [--hidden 4096] [--dtypes float32 bfloat16] [--repeat 7]

`native` and `kernel` call the implementations themselves, without dispatch; kernels in place write into their own
operands. The ratio is native / kernel. Turns alternate, and each figure is the least of its turns, so that other
programs on the machine count little.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from vllm_ir.backends.kernels.cpu import unsupported_reason
from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.attention import generate_paged_attention_inputs
from vllm_ir.frontends.ops.kv_cache import generate_reshape_and_cache_inputs
from vllm_ir.frontends.ops.moe import generate_fused_moe_inputs

HEAD = 128


def calls(rows: int, hidden: int, dtype: torch.dtype) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """Op, variant and arguments of every call to measure: a layer of a decoder with `rows` tokens."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    x, residual, weight = random(rows, hidden), random(rows, hidden), random(hidden)
    yield "rms_norm", "", (x, weight, 1e-5)
    yield "fused_add_rms_norm", "", (x, residual, weight, 1e-5)
    yield "silu_and_mul", "", (random(rows, 2 * hidden),)
    for form in ("none", "tanh"):
        yield "gelu_and_mul", form, (random(rows, 2 * hidden), form)
    positions = torch.randint(0, 4096, (rows,), generator=generator)
    query, key, table = random(rows, hidden), random(rows, max(hidden // 4, HEAD)), random(4096, HEAD).float()
    for variant, is_neox in (("neox", True), ("gpt-j", False)):
        yield "rotary_embedding", variant, (positions, query, key, HEAD, table, is_neox)
    for narrow in ("fp8", "int8"):
        yield f"static_scaled_{narrow}_quant", "", (x, torch.tensor([0.02]))
        yield f"dynamic_per_token_scaled_{narrow}_quant", "", (x,)
        yield f"per_token_group_{narrow}_quant", "", (x, HEAD)
    yield from serving_calls(rows, hidden, dtype)


def serving_calls(rows: int, hidden: int, dtype: torch.dtype) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """The ops with a cache, for `rows` tokens of one sequence behind others, and experts of a quarter of the width."""
    torch.manual_seed(0)
    heads = hidden // HEAD
    kv_heads = math.gcd(heads, 8)
    yield "reshape_and_cache", "", generate_reshape_and_cache_inputs(rows, 64, 16, kv_heads, HEAD, dtype)
    yield "paged_attention", "", generate_paged_attention_inputs(rows, 1, 512, 16, heads, kv_heads, HEAD, dtype)
    yield "fused_moe", "", generate_fused_moe_inputs(rows, hidden // 4, hidden // 4, dtype=dtype)


def seconds(call: Callable[[], object], budget: float = 0.02) -> float:
    """Average time of a call, over as many as fit into the budget."""
    start = time.perf_counter()
    call()
    count = max(1, int(budget / max(time.perf_counter() - start, 1e-7)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def compare(name: str, args: tuple[object, ...], repeat: int) -> tuple[float, float]:
    """Seconds of the native definition and of the kernel."""
    op = ops[name]
    impl = op.impls[PROVIDER]
    reason = impl.rejection(op.complete(args))
    if reason is not None:
        raise SystemExit(f"{name}: {PROVIDER} {reason}")
    impl.impl_fn(*args)  # builds the kernels
    turns = [(seconds(lambda: op.native(*args)), seconds(lambda: impl.impl_fn(*args))) for _ in range(repeat)]
    return min(native for native, _ in turns), min(kernel for _, kernel in turns)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 64, 512], help="tokens at a time")
    parser.add_argument("--hidden", type=int, default=4096, help=f"elements of a token, a multiple of {HEAD}")
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16", "float16"]
    )
    parser.add_argument("--repeat", type=int, default=7, help="turns of each measurement")
    options = parser.parse_args(arguments)
    missing = unsupported_reason()
    if missing is not None:
        raise SystemExit(f"provider {PROVIDER!r}: {missing}")
    threads = torch.get_num_threads()
    table = Table("op", "dtype", "rows", "native µs", "kernel µs", "ratio", title=f"{threads} threads", box=box.SIMPLE)
    for column in table.columns[2:]:
        column.justify = "right"
    for dtype in options.dtypes:
        for rows in options.rows:
            for name, variant, args in calls(rows, options.hidden, getattr(torch, dtype)):
                native, kernel = compare(name, args, options.repeat)
                label = f"{name} {variant}".strip()
                figures = (f"{native * 1e6:.1f}", f"{kernel * 1e6:.1f}", f"{native / kernel:.1f}")
                table.add_row(label, dtype, str(rows), *figures)
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
