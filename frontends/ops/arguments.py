"""Arguments of an op's calls, by position and by name."""

from collections.abc import Mapping, Sequence
from typing import cast

from torch import FunctionSchema


class Arguments:
    """Puts the arguments of calls into the order of an op's parameters.

    Attributes:
        names: the parameters.
    """

    def __init__(self, op_name: str, schema: FunctionSchema) -> None:
        """Of the op with a schema."""
        self.names = tuple(argument.name for argument in schema.arguments)
        self._described = f"vllm_ir.{op_name}"
        self._required = tuple(not argument.has_default_value() for argument in schema.arguments)
        self._defaults = tuple(cast("object", argument.default_value) for argument in schema.arguments)

    def bound(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
        """Arguments by position with defaults filled in.

        Raises:
            TypeError: there are too many, one is missing that has no default, or a name is unknown or given twice.
        """
        if not kwargs or len(args) > len(self.names):
            return self.complete(args)
        found: dict[str, object] = dict(zip(self.names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.names or name in found:
                fact = "is given twice" if name in found else f"is unknown; there are {list(self.names)}"
                raise TypeError(f"{self._described}: argument {name!r} {fact}")
            found[name] = value
        for name, required, default in zip(self.names, self._required, self._defaults, strict=True):
            if name not in found:
                if required:
                    raise TypeError(f"{self._described}: missing argument {name!r}")
                found[name] = default
        return [found[name] for name in self.names]

    def complete(self, args: Sequence[object]) -> list[object]:
        """The arguments with defaults filled in for those that are left out at the end.

        Raises:
            TypeError: too many arguments, or one is missing that has no default.
        """
        given = len(args)
        if given == len(self.names):
            return [*args]
        if given > len(self.names):
            raise TypeError(f"{self._described}: takes {len(self.names)} arguments, got {given}")
        for name, required in zip(self.names[given:], self._required[given:], strict=True):
            if required:
                raise TypeError(f"{self._described}: missing argument {name!r}")
        return [*args, *self._defaults[given:]]
