"""What the examples of fusions with several spellings have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

_Spelling = TypeVar("_Spelling")


def by_dtype(spellings: Sequence[_Spelling]) -> Iterator[tuple[torch.dtype, _Spelling]]:
    """Each spelling in float32 and in a dtype that has conversions, and one of them in every dtype.

    The operators of a spelling in float16 are those in bfloat16.
    """
    for dtype in (torch.float32, torch.bfloat16):
        for spelling in spellings:
            yield dtype, spelling
    yield torch.float16, spellings[0]
