"""The declaration of a fusion: two Python functions that mean the same, and examples of their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum

_NAME = re.compile(r"[a-z_][a-z_0-9]*")


class Numerics(IntEnum):
    """How the results of the two sides of a fusion may differ; a greater one allows all that a lesser one does."""

    EXACT = 0
    """Not in a single bit."""
    REORDERED = 1
    """By the rounding of the same operations in another order, or of another grouping of a sum."""
    CHANGED = 2
    """By roundings to a narrower dtype that one side has and the other has not."""


class AnyString(str):
    """A string in the examples of a fusion that any other may stand in for, as the name of a process group.

    Operations of `before` have it as an attribute, and no other attribute of theirs is that string.
    """

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Fusion:
    """What is replaced, and by what, as two functions over `ir.ops` and PyTorch operators.

    Both are traced, as programs are when they are imported. Where operations of a program are those of `before`, on
    operands of any types for which both functions give results of the same types, they become those of `after`. Nothing
    else has to be said about dtypes, shapes and layouts. Both take the same arguments and return the same number of
    tensors; what `before` does not return must not be used by the rest of the program.

    Raises:
        ValueError: the name is none.
    """

    name: str
    """Lower-case letters, digits and underscores."""
    before: Callable[..., object]
    """Gives one tensor or a tuple of tensors, writes nothing, draws no random numbers."""
    after: Callable[..., object]
    examples: Callable[[], Iterable[tuple[object, ...]]]
    """Arguments for both: a grid over what tells programs apart, such as dtypes, optional tensors and flags.

    Tensors stand for any tensors. Where PyTorch spells a program otherwise if sizes are not known, one with sizes
    that `torch._dynamo.mark_dynamic` has marked stands for such programs. Integers, floats and `AnyString` are
    parameters: any value takes their place. None, booleans, other strings and functions are what they are; each of
    their values that occurs needs an example. The grid is what the fusion is checked on, so it needs every dtype for
    which it is meant.
    """
    numerics: Numerics | Callable[..., Numerics] = Numerics.EXACT
    """How results may differ; a function is called with the arguments, tensors being fakes."""
    requires: Callable[..., bool] | None = None
    """A further condition, called like `numerics`; its name says in reports what is not fulfilled."""
    supported: bool | Callable[[], bool] = field(default=True)
    """Whether the fusion can be used in this process; asking for one that cannot is an error."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"fusion name {self.name!r} has other characters than lower-case letters, digits and underscores"
            )

    @property
    def is_supported(self) -> bool:
        """Whether the fusion can be used in this process."""
        return self.supported() if callable(self.supported) else self.supported

    def numerics_of(self, arguments: tuple[object, ...]) -> Numerics:
        """How results may differ on these arguments."""
        return self.numerics(*arguments) if callable(self.numerics) else self.numerics
