"""What a worker is told; loads nothing of the compiler, so that a bug can be planted first."""

from dataclasses import dataclass

AGREES, REFUSED, FAILED = "agrees", "refused", "failed"
"""What may come of a program on a path."""


@dataclass(frozen=True)
class Settings:
    """What a worker is told at its start."""

    seed: int
    paths: tuple[str, ...]
    shrink_seconds: float = 60.0
    """How long a failure is made smaller for; with 0, no case is made of it."""
    mutant: str = ""
