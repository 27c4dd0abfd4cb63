"""Attributes that every imported operation needs, made quickly.

xDSL checks the parameters of each attribute that it makes. For these, the checks would cost more than the rest of the
operation.
"""

from functools import cache

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, NameLoc, StringAttr, SymbolRefAttr, UnknownLoc

UNKNOWN = UnknownLoc()


@cache
def symbol(name: str) -> SymbolRefAttr:
    """The symbol `@name`. The same object each time: names of operators are few and repeat."""
    return SymbolRefAttr(name)


@cache
def line_location(place: tuple[str, int] | None) -> FileLineColLoc | UnknownLoc:
    """The location of a file and line; the same object each time."""
    if place is None:
        return UNKNOWN
    file, line = place
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(0))


def name_location(name: str, place: tuple[str, int] | None) -> NameLoc:
    """The location `loc("name"(place))`, without xDSL's checks: the two parameters have the right types."""
    location = object.__new__(NameLoc)
    object.__setattr__(location, "desc", StringAttr(name))
    object.__setattr__(location, "location", line_location(place))
    return location
