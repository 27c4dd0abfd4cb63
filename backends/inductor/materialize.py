"""An operator that copies, and that Inductor cannot look into."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from vllm_ir.frontends.fx.torch_objects import Overload
from vllm_ir.frontends.ops.torch_internals import define_overload

_NAMESPACE = "vllm_ir_inductor"
_LIBRARY = torch.library.Library(_NAMESPACE, "DEF")


def _copied(x: Tensor) -> Tensor:
    # Without gaps, so that the copy of a window is not as large as what the window is in.
    return x.clone()


# A layout of Inductor's choice costs nothing; a prescribed one would cost a second copy.
define_overload(
    _LIBRARY, _NAMESPACE, "materialize", "(Tensor x) -> Tensor", _copied, _copied, tags=(torch.Tag.flexible_layout,)
)

materialize = cast(Overload, torch.ops.vllm_ir_inductor.materialize.default)
"""`materialize(x)` is a copy of `x` as `aten.clone` makes it, read where the call stands.

Inductor computes lazily: it inlines what a value is computed from into the kernels that use the value, `aten.clone`
included, unless it is in memory already. Such a kernel may come behind a write to what it reads, or do that write
itself. A call that Inductor cannot look into does neither: its operand is put into memory in front of it, its result is
in memory behind it. It costs one kernel and one allocation.
"""
