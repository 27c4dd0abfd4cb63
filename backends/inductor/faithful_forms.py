"""Which writes in place Inductor lowers to exactly these writes.

Inductor expects functional graphs; what it makes of an operator that writes was found by experiment. The tables hold
what `test/backends/inductor/test_faithful_forms.py` shows to be right: every write through every kind of window, bit
for bit, with no byte beside the window changed. What the test shows to be wrong has to stay out:

* Operators for which Inductor has no code of its own (`exp_`, `masked_scatter_`, …): it takes the result for new memory
  although it is the operand, and reuses it. The same goes for complex numbers, whatever the operator.
* `fill_`: it stores the number, and not what the number is as an element (booleans, integers).
* Writes through windows of another element type, by kernels of Inductor's own.
* Everything that is written through `t`, `transpose`, `_neg_view`, … : there is no lowering, or it is not a view.
* Kernels of Inductor's own on memory of its own. Where they write all of it, it lets another value take the place of
  the memory: earlier views are then views of that value, and `t.copy_(x)` makes `t` the argument `x` itself.

A faithful form is not enough for a faithful graph. What surrounds the write has to obey these rules, which
`test/backends/inductor/test_materialize.py` shows to be needed and enough; `materialize` is the remedy for all of them:

* A write by an operator that Inductor calls comes in front of all lazy values that read the old contents, also those
  that are returned, unless something put them into memory. Inductor's own kernels come behind them.
* `copy_` inlines a source that is a view, or that it casts or expands, and everything below it up to what is in
  memory. If that reads the written window other than element by element, the source must be in memory. A source that
  is an operator's result of the window's sizes and element type may read anything, but reductions of the written
  argument may fail to compile.
* `index_put_` inlines its indices, and a value that is a plain view of the argument; `scatter_` and its variants inline
  everything. What is inlined must not read the written window.
* An operand of `aten.cat` becomes a part of the result's memory, and must not be written behind it.
* A functional scatter whose result is copied into an argument as a whole is put in place by Inductor itself, which does
  not ask whether the source is in the same memory, nor whether the result is used behind a later write.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from vllm_ir.backends.inductor.torch_internals import can_call_writing, has_own_code
from vllm_ir.frontends.fx.torch_objects import Overload, schema_of

aten = torch.ops.aten

KERNELS: frozenset[Overload] = frozenset(
    (
        aten.copy_.default,
        aten.index_put_.default,
        aten.scatter_.src,
        aten.scatter_.value,
        aten.scatter_.reduce,
        aten.scatter_.value_reduce,
        aten.scatter_add_.default,
        aten.scatter_reduce_.two,
    )
)
"""PyTorch's operators that Inductor has code of its own for. The others are copies of functional values."""

WINDOWS: frozenset[Overload] = frozenset(
    (
        aten.alias.default,
        aten.as_strided.default,
        aten.diagonal.default,
        aten.expand.default,
        aten.permute.default,
        aten.reshape.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unbind.int,
        aten.unfold.default,
        aten.unsqueeze.default,
        aten.view.default,
    )
)
"""Views that everything can be written through."""

REINTERPRETATIONS: frozenset[Overload] = frozenset(
    (aten.view.dtype, aten.view_as_complex.default, aten.view_as_real.default)
)
"""Views that only operators that Inductor calls can write through, and only in an argument."""


def is_faithful(
    target: Overload, views: Iterable[Overload], *, temporary: bool = False, dtype: torch.dtype | None = None
) -> bool:
    """Whether Inductor lowers a write in place to exactly that write.

    Args:
        target: an operator that writes.
        views: the views from the memory's root to the window that is written, each really a view of the one before;
            `split` and `unbind` stand for their pieces. If several windows are written, each of them is asked for.
        temporary: the memory is Inductor's own, not an argument of the graph.
        dtype: the element type of the window; None stands for any that is not complex.

    How the window lies in memory, and the element type otherwise, make no difference.
    """
    if _is_called(target):
        return (WINDOWS if temporary else WINDOWS | REINTERPRETATIONS).issuperset(views)
    if target not in KERNELS or temporary or (dtype is not None and dtype.is_complex):
        return False
    return WINDOWS.issuperset(views)


def _is_called(target: Overload) -> bool:
    """Whether an operator is one that Inductor calls, and whose results it does not mistake.

    It may write several operands and return new results. One that returns an operand has no lowering.
    """
    if target.namespace in ("aten", "prims") or has_own_code(target) or not can_call_writing(target):
        return False
    return all(result.alias_info is None for result in schema_of(target).returns)
