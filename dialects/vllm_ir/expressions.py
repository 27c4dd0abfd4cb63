"""Sizes that are not known at compile time, as text: arithmetic on symbols, as SymPy prints it (`2*s0 + 1`).

Such texts come from files. They are data: nothing may run them as Python code.
"""

from __future__ import annotations

import ast
import re
import warnings
from functools import lru_cache

from xdsl.utils.exceptions import VerifyException

UNKNOWN = "?"
"""A size of which nothing is known."""

_LONGEST = 10_000
_DEEPEST = 300
_HIGHEST_POWER = 64
_WORDS = re.compile(r"(?:[A-Za-z_]\w*+|\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])|[\s()+\-*/%,<>=!&|~])*+", re.ASCII)
_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Call, ast.Name, ast.Load, ast.Constant, ast.Compare, ast.Tuple),
    *(ast.operator, ast.unaryop, ast.cmpop),
)
_SYMBOL = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@lru_cache(maxsize=4096)
def parsed(text: str) -> ast.expr:
    """The tree of an expression; callers do not change it.

    Raises:
        VerifyException: it is not arithmetic on numbers and names, or of a size that no program needs.
    """
    if len(text) > _LONGEST:
        raise VerifyException(f"size {shortened(text)!r} has {len(text)} characters, more than {_LONGEST}")
    try:
        if not _WORDS.fullmatch(text):
            raise ValueError("not arithmetic")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise VerifyException(f"size {shortened(text)!r} is not an arithmetic expression") from None
    _verify_depth(text, tree.body)
    for node in ast.walk(tree):
        if not isinstance(node, _NODES) or (isinstance(node, ast.Call) and not _is_plain_call(node)):
            raise VerifyException(f"size {shortened(text)!r} is not an arithmetic expression")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            _verify_power(text, node.right)
    return tree.body


def verify_size(size: int | str) -> None:
    """A size, stride or offset is a number of 64 bits, an expression, or `?`; `VerifyException` otherwise."""
    if isinstance(size, str):
        if size != UNKNOWN:
            parsed(size)
    elif size >= 2**63:
        raise VerifyException(f"{shortened(str(size))} does not fit in 64 bits")


def is_symbol(text: str) -> bool:
    """Whether a text may be the name of a size."""
    return _SYMBOL.fullmatch(text) is not None


def shortened(text: str) -> str:
    """A text for a message."""
    return text if len(text) <= 60 else f"{text[:50]}..."


def _is_plain_call(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and not node.keywords


def _verify_depth(text: str, tree: ast.expr) -> None:
    """Whoever reads a tree calls itself for each level."""
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise VerifyException(f"size {shortened(text)!r} nests more than {_DEEPEST} levels deep")


def _verify_power(text: str, power: ast.expr) -> None:
    """`s0**2`, but no numbers that take longer to compute than the program."""
    if isinstance(power, ast.UnaryOp):
        power = power.operand
    known = isinstance(power, ast.Constant) and isinstance(power.value, int) and power.value <= _HIGHEST_POWER
    if not known and not isinstance(power, ast.Name):
        raise VerifyException(f"size {shortened(text)!r} has a power that is not a number up to {_HIGHEST_POWER}")
