"""Results with the strides that they should have.

Inductor lays out views of what it computes as it likes if they have gaps, whatever is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx
from torch._prims_common import is_non_overlapping_and_dense_or_false

from vllm_ir.backends.inductor.aliases import output_nodes
from vllm_ir.backends.inductor.torch_internals import BoxedCallable
from vllm_ir.frontends.fx.torch_internals import has_symbolic_metadata

Strides = tuple[int, ...] | None


def stated_strides(graph: fx.Graph) -> list[Strides]:
    """The strides of results with gaps; None for all others, which Inductor lays out as told, and for dynamic sizes."""
    return [_strides(node.meta.get("val")) if isinstance(node, fx.Node) else None for node in output_nodes(graph)]


def _strides(value: object) -> Strides:
    if not isinstance(value, Tensor) or has_symbolic_metadata(value):
        return None
    return None if 0 in value.shape or is_non_overlapping_and_dense_or_false(value) else value.stride()


def with_strides(compiled: BoxedCallable, stated: Sequence[Strides]) -> BoxedCallable:
    """`compiled`, with results copied that have other strides than are `stated`.

    Which ones that are is the same in every call.
    """
    if all(strides is None for strides in stated):
        return compiled
    wrong: list[int] | None = None

    def run(arguments: list[object]) -> Sequence[object]:
        nonlocal wrong
        results = compiled(arguments)
        if wrong is None:
            wrong = [i for i, strides in enumerate(stated) if strides is not None and _differs(results[i], strides)]
        return _copied(results, wrong, stated) if wrong else results

    return run


def _differs(value: object, strides: Sequence[int]) -> bool:
    """Whether a tensor has other strides, where it has more than one element to go to."""
    return isinstance(value, Tensor) and any(
        size > 1 and step != wanted for size, step, wanted in zip(value.shape, value.stride(), strides, strict=True)
    )


def _copied(results: Sequence[object], wrong: Sequence[int], stated: Sequence[Strides]) -> Sequence[object]:
    copies = list(results)
    for index in wrong:
        value, strides = copies[index], stated[index]
        if isinstance(value, Tensor) and strides is not None:
            copies[index] = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(
                value
            )
    return copies
