"""Versions of tensors: what a tensor is after each update of it, whether or not the program has it as a value.

An update of a part of a tensor makes a new version of the tensor, of which the updated part is a window. Where that
part is put back into the tensor at its place, the result is that version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.narrow_updates.boxes import BoxDimension, box_of
from vllm_ir.conversions.narrow_updates.windows import Window


@dataclass(eq=False)
class Root:
    """A tensor that is no window onto another one."""

    value: SSAValue
    shape: tuple[int, ...]
    is_updated: bool = False
    """Whether a version behind the first one is made as a whole."""
    _boxes: dict[object, list[BoxDimension] | None] = field(default_factory=dict[object, "list[BoxDimension] | None"])

    def box(self, window: Window) -> list[BoxDimension] | None:
        """The window as a box in this tensor; see `box_of`."""
        key = (window.key, window.sizes)
        if key not in self._boxes:
            self._boxes[key] = box_of(window, self.shape)
        return self._boxes[key]


@dataclass(frozen=True, eq=False)
class Update:
    """A `dynamic_update_slice` or `scatter` on a window, as a part of which it replaces `target`."""

    op: Operation
    operand: Window
    target: Window


@dataclass(eq=False)
class Version:
    """A tensor after updates: `update` of `parent`, or the tensor itself."""

    root: Root
    parent: Version | None = None
    update: Update | None = None
    position: int = -1
    """Place of the operation, among those of the block, that the update comes from."""
    is_made: bool = False
    """Whether it is computed as a whole."""
    made: list[Version] = field(default_factory=list["Version"])
    """Versions computed from it."""

    def make(self) -> None:
        """Have it computed as a whole, and with it those that it is made of."""
        version: Version | None = self
        while version is not None and not version.is_made:
            version.is_made = True
            if version.parent is not None:
                version.parent.made.append(version)
                version.root.is_updated = True
            version = version.parent

    def back_to(self, ancestor: Version, limit: int) -> list[Update] | None:
        """Updates since an older version, the oldest first; None if it is none, or more than `limit` updates older."""
        updates: list[Update] = []
        version = self
        while version is not ancestor:
            if version.update is None or version.parent is None or len(updates) == limit:
                return None
            updates.append(version.update)
            version = version.parent
        return updates[::-1]

    def history(self) -> Iterator[Version]:
        """This version and those before it, the newest first."""
        version: Version | None = self
        while version is not None:
            yield version
            version = version.parent


@dataclass(frozen=True, eq=False)
class Part:
    """What a value is: a window onto a version."""

    version: Version
    window: Window
