"""Rewrites by number: every pass of ours that changes a module can be told to stop behind the N-th change.

A module that a limited pass leaves behind is valid and means the same as before, so a wrong change is found by its
number (`tools/bisect.py`). Changes are counted in a fixed order, through all functions of a module.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation
from xdsl.passes import ModulePass

from vllm_ir.conversions.errors import location_text


@dataclass(frozen=True)
class Site:
    """Where a rewrite took place: the operation as it was before."""

    what: str
    """What happened to it, such as `is lowered`."""
    operation: str
    """Its text, one line."""
    location: str
    """`file:line` of the user's program; empty if it is not known."""

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        return f"{where}{self.operation} {self.what}"


class Rewrites:
    """Counts the rewrites of one run of a pass, and ends them at a limit."""

    def __init__(self, limit: int | None = None) -> None:
        """At most `limit` rewrites; any number with None."""
        self.limit = limit
        self.done = 0
        """How many rewrites there were."""
        self.last: Site | None = None
        """The rewrite whose number is the limit. No other is described: texts of operations cost time."""

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.limit is not None

    def has(self, count: int) -> bool:
        """Whether `count` more rewrites may be done."""
        return self.limit is None or self.done + count <= self.limit

    def take(self, op: Operation, what: str) -> bool:
        """Ask for one more rewrite, of an operation that is still as it was; it is counted if there may be one."""
        if self.limit is not None:
            if self.done >= self.limit:
                return False
            if self.done + 1 == self.limit:
                self.last = Site(what, str(op).partition("\n")[0], location_text(op))
        self.done += 1
        return True


@dataclass(frozen=True)
class LimitedPass(ModulePass):
    """A pass whose rewrites are counted.

    `limit`: how many are done; all of them without it.
    """

    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"option limit is {self.limit}, it takes a number of rewrites: 0 or more")

    @property
    def rewrites(self) -> Rewrites:
        """What the last run of the pass did; nothing if there was none."""
        found: object = self.__dict__.get("_rewrites")
        return found if isinstance(found, Rewrites) else Rewrites(self.limit)

    def start(self) -> Rewrites:
        """Begin to count the rewrites of a run."""
        # Not a field: the fields of a pass are its options. Each run, also of the same pass, has its own count.
        rewrites = Rewrites(self.limit)
        object.__setattr__(self, "_rewrites", rewrites)
        return rewrites
