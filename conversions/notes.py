"""What passes leave on a module for reports."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, StringAttr


def text_array(texts: Iterable[str]) -> ArrayAttr[StringAttr]:
    """Lines of text as an attribute."""
    return ArrayAttr([StringAttr(text) for text in texts])
