"""Marks on real tensors: which of their sizes are not known when a program is compiled. Loads nothing but torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from torch import Tensor


def marked_dimensions(tensor: Tensor) -> frozenset[int]:
    """The dimensions that `torch._dynamo.mark_dynamic` has marked."""
    return frozenset(cast("Iterable[int]", getattr(tensor, "_dynamo_dynamic_indices", ())))


def mark(tensor: Tensor, dimensions: Iterable[int]) -> Tensor:
    """`tensor`, of which these dimensions are marked."""
    from torch._dynamo import mark_dynamic  # loads Dynamo

    for dimension in dimensions:
        mark_dynamic(tensor, dimension)
    return tensor
