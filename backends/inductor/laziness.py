"""Which operators Inductor computes on the spot, and which where their results are used.

Inductor inlines what a kernel reads into the kernel, unless it is in memory already. A result that is inlined is
computed when its user runs: by then its operands may have been written.
"""

from __future__ import annotations

import torch

from vllm_ir.backends.inductor.torch_internals import falls_back, needs_operands_in_memory
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload


def is_extern(overload: Overload) -> bool:
    """Whether Inductor calls an operator as it is, because it is not PyTorch's own."""
    return overload.namespace not in ("aten", "prims", "inductor_prims")


def is_realized(overload: Overload) -> bool:
    """Whether the results of an operator are in memory as soon as it is reached."""
    if op_info(overload).is_view:
        return False
    return is_extern(overload) or falls_back(overload) or needs_operands_in_memory(overload)


def places_operands(overload: Overload) -> bool:
    """Whether Inductor makes the operands of an operator parts of its result, so that both are one memory."""
    return overload is torch.ops.aten.cat.default
