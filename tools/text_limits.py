"""Limits of the text that is read: deeper nesting than any program has would exhaust Python's stack, and worse."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input, Span

DEEPEST = 100
"""Brackets around a bracket, regions among them."""
LONGEST_WORD = 10_000
"""Characters of an identifier or a list of dimensions: reading one takes quadratic time."""
MOST_ELEMENTS = 1 << 22
"""Elements of a dense attribute: `dense<0> : tensor<..>` takes the memory of all, however short its text is."""
LARGEST_ALIAS = 10_000
"""Attributes in an attribute that has a name, which is printed in full wherever the name stands."""

_PARTS = re.compile(rf'"(?:[^"\\\n]|\\.)*+"?|//[^\n]*+|->|[(\[{{<]|[)\]}}>]|[\w.$]{{{LONGEST_WORD},}}+')


def verify_text(text: Input) -> None:
    """Refuse text that nests too deep or has too long words, where it does; `ParseError`."""
    depth = 0
    for part in _PARTS.finditer(text.content):
        first = part[0][0]
        if first in "([{<":
            depth += 1
            if depth > DEEPEST:
                raise _error(text, part.start(), f"nests more than {DEEPEST} brackets deep")
        elif first in ")]}>":
            depth = max(depth - 1, 0)
        elif first not in '"/-':
            raise _error(text, part.start(), f"a word of {len(part[0])} characters, more than {LONGEST_WORD}")


def _error(text: Input, position: int, message: str) -> ParseError:
    return ParseError(Span(position, position + 1, text), message)


class AliasSizes:
    """How much the attributes that have names hold, and how deep, with the names in them written out."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def excess(self, attribute: Attribute) -> str | None:
        """What is too much about an attribute; None if nothing is."""
        size, depth = self._known[id(attribute)] = self._measured(attribute)
        if depth > DEEPEST // 2:
            return f"the attribute nests more than {DEEPEST // 2} levels deep"
        if size > LARGEST_ALIAS:
            return f"the attribute holds {size} others, more than {LARGEST_ALIAS}"
        return None

    def _measured(self, attribute: Attribute) -> tuple[int, int]:
        if (known := self._known.get(id(attribute))) is not None:
            return known
        inner = [self._measured(part) for part in _parts(attribute)]
        return 1 + sum(size for size, _ in inner), 1 + max((depth for _, depth in inner), default=0)


def _parts(attribute: Attribute) -> Iterable[Attribute]:
    match attribute:
        case ArrayAttr():
            return attribute.data
        case DictionaryAttr():
            return attribute.data.values()
        case ParametrizedAttribute():
            return attribute.parameters
        case _:
            return ()
