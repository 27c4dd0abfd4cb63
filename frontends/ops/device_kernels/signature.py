"""Kinds of operands, and the torch schema that goes with them.

A kernel has no declared signature: what it takes shows at each call. So it becomes one torch operator for each list of
operand kinds that it is called with, and for each number of new outputs. Both are part of the operator's name
(`write_rows_tti_0`), so that a module read from text finds its operators in a process that has not called the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, cast

import torch
from torch import SymInt, Tensor

NAMESPACE = "device_kernel"
"""Library namespace of the operators."""

TENSOR = "t"
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        TENSOR: "Tensor",
        "n": "Tensor?",
        "b": "bool",
        "i": "SymInt",
        "f": "float",
        "s": "str",
        "d": "ScalarType",
        "T": "Tensor[]",
        "B": "bool[]",
        "I": "SymInt[]",
        "F": "float[]",
    }
)
"""Schema types by kind: a letter for a single operand, its capital for a list."""

_NAME = re.compile(rf"(?P<key>\w+)_(?P<kinds>[{''.join(_TYPES)}]*)_(?P<fresh>\d+)")


class Signature(NamedTuple):
    """What one operator of a kernel takes and gives."""

    key: str
    """The kernel's name among operators."""
    kinds: str
    """A letter for each operand."""
    fresh: int
    """Number of outputs that are new tensors."""

    @property
    def name(self) -> str:
        """The operator's name in the namespace."""
        return f"{self.key}_{self.kinds}_{self.fresh}"

    @staticmethod
    def parse(name: str) -> Signature | None:
        """What the operator of that name takes and gives; None if no operator can be called so."""
        match = _NAME.fullmatch(name)
        return None if match is None else Signature(match["key"], match["kinds"], int(match["fresh"]))

    def schema(self, written: Sequence[int]) -> str:
        """Parameters and results as text of a torch schema; `written` are the operands with an aliased output."""
        operands = [
            f"{_TYPES[kind]}{f'(a{position}!)' if position in written else ''} operand_{position}"
            for position, kind in enumerate(self.kinds)
        ]
        arguments = ", ".join([*operands, "*", "SymInt[] grid", "str? backend_config=None"])
        return f"({arguments}) -> ({', '.join(['Tensor'] * self.fresh)})"


def kind_of(value: object) -> str | None:
    """The kind of an operand; None if a kernel cannot take it."""
    match value:
        case Tensor():
            return TENSOR
        case None:
            return "n"
        case bool():
            return "b"
        case int() | SymInt():
            return "i"
        case float():
            return "f"
        case str():
            return "s"
        case torch.dtype():
            return "d"
        case list() | tuple():
            return _kind_of_list(cast("Sequence[object]", value))
        case _:
            return None


def _kind_of_list(values: Sequence[object]) -> str | None:
    kinds = {kind_of(value) for value in values}
    if not kinds:
        return "I"
    if kinds == {"f", "i"} and not any(isinstance(value, SymInt) for value in values):
        return "F"
    kind = kinds.pop()
    capital = None if kind is None else kind.upper()
    return capital if not kinds and kind != capital and capital in _TYPES else None
