"""`aliasing`: mutated inputs as outputs, and which output is which input."""

from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from vllm_ir.tools.alias_outputs import alias_outputs
from vllm_ir.tools.neuron.graphs import Result


def alias_graph(gm: fx.GraphModule, example_inputs: Sequence[object] | None = None) -> Result:
    """`ir.alias_outputs` as a pass: `io_map`, `original_output_count` and `output_views` are the metadata."""
    return alias_outputs(gm, example_inputs)
