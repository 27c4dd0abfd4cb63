"""Making a text that shows a finding smaller."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from vllm_ir.tools.fuzz_text.mutations import tokens

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def minimise(text: str, shows: Callable[[str], bool], attempts: int) -> str:
    """A text of fewer lines and tokens for which `shows` still holds; `shows` is asked `attempts` times at most."""
    left = attempts

    def ask(parts: Sequence[str]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and shows("".join(parts))

    for split in (_LINE.findall, tokens):
        text = "".join(_without(split(text), ask))
    return text


def _without(parts: list[str], shows: Callable[[Sequence[str]], bool]) -> list[str]:
    """Delete runs of parts, long ones first, for as long as `shows` holds."""
    length = max(len(parts) // 2, 1)
    while True:
        start = 0
        while start < len(parts):
            shorter = parts[:start] + parts[start + length :]
            if shorter and shows(shorter):
                parts = shorter
            else:
                start += length
        if length == 1:
            return parts
        length //= 2
