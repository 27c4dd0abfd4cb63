"""Whether calls of ops go through their torch operators.

They do by default, so that tracers record one node per call. Without, a call runs the chosen implementation as the
Python code that it is, and tracers record what that calls. The setting is one for the whole process: Dynamo guards on
it like on any global of a program.
"""

from collections.abc import Generator
from contextlib import contextmanager

_enabled = True


def torch_wrap_enabled() -> bool:
    """Whether calls of ops are calls of torch operators."""
    return _enabled


def set_default_torch_wrap(enabled: bool) -> None:
    """Set it for the process."""
    global _enabled
    _enabled = enabled


@contextmanager
def enable_torch_wrap(enabled: bool = True) -> Generator[None]:
    """A context manager that sets it and puts the former setting back at its end."""
    before = _enabled
    set_default_torch_wrap(enabled)
    try:
        yield
    finally:
        set_default_torch_wrap(before)
