"""Room on Python's own stack, for code that calls deeply and often."""

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_ROOM = 1 << 17  # stack slots of 8 bytes; mapped, and touched only as far as calls nest


def on_roomy_stack(function: Callable[[], Result]) -> Result:
    """Returns `function()`, called with space for its callees' frames.

    CPython keeps frames in chunks of 16 KiB, each mapped when a call does not fit the last one and unmapped when that
    call returns. Tracing makes millions of calls around one depth; where a chunk happens to end there, each of them
    maps and unmaps memory, which makes tracing two to three times slower. A frame that asks for much stack moves the
    end of the chunk out of reach.
    """
    return function()


on_roomy_stack.__code__ = on_roomy_stack.__code__.replace(co_stacksize=_ROOM)
