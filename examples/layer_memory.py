"""How many activations a layer step allocates: attention, then `fused_add_rms_norm`.

    python examples/layer_memory.py [--tokens 64] [--hidden 512] [--backends eager vllm_ir_eager vllm_ir]

The default overload leaves its arguments as they are, so that a kernel which works in place gets copies of them: two
activations. `maybe_inplace` gives the arguments away, and the kernel writes into them. `layer` is the step from the
queries on; `norm` is its second half alone, where both activations are the caller's. Inside a compiled layer nobody
reads what attention gave after the norm, so that the compiler drops that copy in both overloads. Allocations are those
that torch's profiler sees in one call, of at least the size of an activation and beyond those of attention by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from step_memory import step_memory
from torch import Tensor

import vllm_ir as ir

HEAD = 64
EPSILON = 1e-5
BACKENDS = ("eager", "vllm_ir_eager", "vllm_ir")
Step = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Inputs:
    """What one step of a layer works on."""

    attention: tuple[object, ...]
    """Arguments of `paged_attention`: tokens of one sequence, and its cache."""
    residual: Tensor
    """`[tokens, hidden]`."""
    weight: Tensor
    """`[hidden]`."""

    @property
    def activation_bytes(self) -> int:
        """Bytes of an activation."""
        return self.residual.nbytes


def make_inputs(tokens: int, hidden: int) -> Inputs:
    """Random inputs, the same ones each time, in float32."""
    torch.manual_seed(0)
    heads = hidden // HEAD
    attention = ir.ops.paged_attention.generate_inputs(
        num_tokens=tokens, num_sequences=1, num_heads=heads, num_kv_heads=1, head_size=HEAD, dtype=torch.float32
    )
    return Inputs(attention, torch.randn(tokens, hidden), torch.ones(hidden))


def attend(*arguments: object) -> Tensor:
    """Attention of the step's tokens, `[tokens, hidden]`."""
    return ir.ops.paged_attention(*arguments).flatten(1)


def layer(residual: Tensor, weight: Tensor, *attention: object) -> tuple[Tensor, Tensor]:
    """The layer step with the default overload: the caller's residual stays."""
    return ir.ops.fused_add_rms_norm(attend(*attention), residual, weight, EPSILON)


def layer_in_place(residual: Tensor, weight: Tensor, *attention: object) -> tuple[Tensor, Tensor]:
    """The layer step that gives both activations away."""
    return ir.ops.fused_add_rms_norm.maybe_inplace(attend(*attention), residual, weight, EPSILON)


def norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The second half alone, with the default overload: both activations are the caller's."""
    return ir.ops.fused_add_rms_norm(x, residual, weight, EPSILON)


def norm_in_place(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The second half alone, which overwrites what the caller gave away."""
    return ir.ops.fused_add_rms_norm.maybe_inplace(x, residual, weight, EPSILON)


def activations_allocated(backend: str, step: Step, arguments: Sequence[object], bytes_of_one: int) -> int:
    """Allocations of one call that are at least as large as an activation. The step may overwrite its arguments."""
    call = step if backend == "eager" else torch.compile(step, backend=backend, fullgraph=True, dynamic=False)
    for _ in range(2):  # what is compiled and built at first is not a part of a step
        call(*arguments)
    return step_memory(lambda: call(*arguments)).count(bytes_of_one)


def measure(inputs: Inputs, backend: str) -> dict[str, tuple[int, int]]:
    """Activations that the step and its second half allocate: with the default overload, and with `maybe_inplace`."""
    providers = {name: ["cpu"] for name in ("paged_attention", "fused_add_rms_norm")}
    size = inputs.activation_bytes
    with torch.no_grad(), ir.KernelConfig(ir_op_priority=providers).apply():

        def count(step: Callable[..., object], *arguments: object) -> int:
            return activations_allocated(backend, step, arguments, size)

        attention = count(attend, *inputs.attention)
        layers = [count(step, inputs.residual, inputs.weight, *inputs.attention) for step in (layer, layer_in_place)]
        x = attend(*inputs.attention)
        norms = [count(step, x, inputs.residual, inputs.weight) for step in (norm, norm_in_place)]
    return {"layer": (layers[0] - attention, layers[1] - attention), "norm": (norms[0], norms[1])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a step")
    parser.add_argument("--hidden", type=int, default=512, help=f"elements of a token, a multiple of {HEAD}")
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    options = parser.parse_args(arguments)
    if options.hidden % HEAD:
        parser.error(f"--hidden must be a multiple of {HEAD}, got {options.hidden}")
    inputs = make_inputs(options.tokens, options.hidden)
    title = f"activations of {inputs.activation_bytes} bytes that a step allocates"
    table = Table("step", "backend", "default", "maybe_inplace", title=title, box=box.SIMPLE)
    for backend in options.backends:
        for name, (default, in_place) in measure(inputs, backend).items():
            table.add_row(name, backend, str(default), str(in_place))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
