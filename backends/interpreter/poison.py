"""Memory that was given away: nothing may read it before it is written again."""

from __future__ import annotations

import torch
from torch import Tensor

_GARBAGE = 0xA5


class Poison:
    """Which bytes of which storages have no defined contents. Storages are held, so that addresses stay theirs."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[torch.UntypedStorage, Tensor]] = {}

    def spoil(self, window: Tensor) -> None:
        """Take the contents of a window away: they become garbage, not a number for floating-point elements."""
        if window.numel() == 0:
            return
        if window.dtype.is_floating_point or window.dtype.is_complex:
            window.fill_(torch.nan)
        else:
            window.fill_(True if window.dtype == torch.bool else _GARBAGE & torch.iinfo(window.dtype).max)
        storage = window.untyped_storage()
        marks = torch.zeros(storage.nbytes(), dtype=torch.bool)
        _, marks = self._marks.setdefault(storage.data_ptr(), (storage, marks))
        _bytes(marks, window).fill_(True)

    def restore(self, window: Tensor) -> None:
        """A window was written as a whole."""
        if self._marks and (found := self._marks.get(window.untyped_storage().data_ptr())) is not None:
            _bytes(found[1], window).fill_(False)

    def spoiled(self, window: Tensor) -> bool:
        """Whether any element of a window has undefined contents."""
        if not self._marks or window.numel() == 0:
            return False
        found = self._marks.get(window.untyped_storage().data_ptr())
        return found is not None and bool(_bytes(found[1], window).any())

    def undefined(self, storage: torch.UntypedStorage) -> Tensor | None:
        """Which bytes of a storage have undefined contents; None if all are defined."""
        found = self._marks.get(storage.data_ptr())
        return None if found is None else found[1]


def _bytes(marks: Tensor, window: Tensor) -> Tensor:
    """The marks of the bytes of a window."""
    width = window.element_size()
    strides = (*(step * width for step in window.stride()), 1)
    return marks.as_strided((*window.shape, width), strides, window.storage_offset() * width)
