"""Functional forms of operators, in particular of writing ones, that a compiler cannot look into.

Inductor takes `auto_functionalized` apart and decides by itself which copies it needs, without asking whether another
operand shares the memory. An opaque operator that copies, calls and returns the new values gives it nothing to decide.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import cast

import torch
from torch import Tensor

from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload, clone_with_strides, overloads_of, packet_of, schema_of
from vllm_ir.frontends.fx.values import is_sequence
from vllm_ir.frontends.ops.memory import fresh, tensors_in
from vllm_ir.frontends.ops.torch_internals import Kernel, define_overload


@dataclass(frozen=True)
class Written:
    """The writing operator that an opaque one calls on copies, and its written arguments that have a new value."""

    overload: Overload
    arguments: tuple[str, ...]


_NAMESPACE = "vllm_ir_functional"
_LIBRARY = torch.library.Library(_NAMESPACE, "DEF")
_DEFINING = threading.Lock()
_WRITING: dict[Overload, Written] = {}
"""What the operators defined here do on copies."""
_ALIAS_MARK = re.compile(r"(?<=Tensor)\([^)]*\)")


def opaque_functional(overload: Overload, absent: tuple[str, ...] = (), sharing: tuple[int, ...] = ()) -> Overload:
    """An operator with the arguments of `overload` that returns its new results and the new values of what it writes.

    Results that are written operands are left out; all others are new memory. `absent` names written arguments that are
    None; they have no new value. `sharing` numbers the tensors among the arguments, in order, where some are the same
    one: those of one number get one copy, and the new values of the different ones come as a list. It is empty where
    all are different.
    """
    # An operator can be defined only once, whichever thread asks first and however the arguments are spelled.
    with _DEFINING:
        return _defined(overload, absent, sharing)


@cache
def _defined(overload: Overload, absent: tuple[str, ...], sharing: tuple[int, ...]) -> Overload:
    names = [a.name for a in op_info(overload).arguments]
    kept = tuple(a.name for a in op_info(overload).arguments if a.writes and a.name not in absent)
    name = "_".join([re.sub(r"\W", "_", str(overload)), *absent, *map(str, sharing)])

    def run(*args: object, **kwargs: object) -> object:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return _run_on_copies(overload, kept, {name: given[name] for name in names if name in given}, sharing)

    schema, tags = _signature(overload, kept, sharing), {torch.Tag.nondeterministic_seeded}.intersection(overload.tags)
    define_overload(_LIBRARY, _NAMESPACE, name, schema, cast(Kernel, run), cast(Kernel, run), tags=tuple(tags))
    packet = packet_of(_NAMESPACE, name)
    if packet is None:
        raise RuntimeError(f"{_NAMESPACE}::{name} was not defined")
    (defined,) = overloads_of(packet)
    if kept and not sharing:
        _WRITING[defined] = Written(overload, kept)
    return defined


def written_on_copies(overload: Overload) -> Written | None:
    """What an opaque operator writes on copies, one for each; None for all other operators."""
    return _WRITING.get(overload)


def _signature(overload: Overload, kept: tuple[str, ...], sharing: tuple[int, ...]) -> str:
    schema = schema_of(overload)
    text, _, returned = str(schema).rpartition(" -> ")
    arguments = _ALIAS_MARK.sub("", text[text.index("(") :])
    kinds = {a.name: str(a.type) for a in schema.arguments}
    declared = _ALIAS_MARK.sub("", returned[1:-1] if returned.startswith("(") else returned).split(", ")
    results = [
        text for text, fact in zip(declared, schema.returns, strict=False) if not kept or fact.alias_info is None
    ]
    if sharing:
        results.append("Tensor[]")
    else:
        results += ["Tensor[]" if "List" in kinds[name] else "Tensor" for name in kept]
    return f"{arguments} -> ({', '.join(results)})"


def _run_on_copies(
    overload: Overload, written: tuple[str, ...], given: Mapping[str, object], sharing: tuple[int, ...]
) -> object:
    """Call `overload` on copies of what it writes; whatever else it takes is read as it is, even if it is the same."""
    copies: dict[int, Tensor] = {}
    if sharing:
        bound = _with_shared_copies(given, written, sharing, copies)
    else:
        bound = {name: _copied(value) if name in written else value for name, value in given.items()}
    own: object = overload(**bound)
    returns = schema_of(overload).returns
    mine: Sequence[object] = [own] if len(returns) == 1 else own if is_sequence(own) else []
    if written:
        results = [value for value, result in zip(mine, returns, strict=True) if result.alias_info is None]
    else:
        results = [_apart(value, list(given.values())) for value in mine]
    if sharing:
        results.append(list(copies.values()))
    else:
        results.extend(bound[name] for name in written)
    return results[0] if len(results) == 1 else tuple(results)


def _with_shared_copies(
    bound: Mapping[str, object], written: tuple[str, ...], sharing: tuple[int, ...], copies: dict[int, Tensor]
) -> dict[str, object]:
    """The arguments with all uses of a written tensor replaced by one copy, which is recorded under its number."""
    numbers = iter(sharing)
    numbered = {name: _numbered(value, numbers) for name, value in bound.items()}
    for name in written:
        for number, tensor in _tensors(numbered[name]):
            if number not in copies:
                copies[number] = clone_with_strides(tensor)
    return {name: _replaced(value, copies) for name, value in numbered.items()}


def _numbered(value: object, numbers: Iterator[int]) -> object:
    """Nested lists with each tensor as a pair of its number and itself."""
    if isinstance(value, Tensor):
        return _Numbered(next(numbers), value)
    return [_numbered(item, numbers) for item in value] if is_sequence(value) else value


def _tensors(value: object) -> Iterator[tuple[int, Tensor]]:
    if isinstance(value, _Numbered):
        yield value.number, value.tensor
    elif is_sequence(value):
        for item in value:
            yield from _tensors(item)


def _replaced(value: object, copies: Mapping[int, Tensor]) -> object:
    if isinstance(value, _Numbered):
        return copies.get(value.number, value.tensor)
    return [_replaced(item, copies) for item in value] if is_sequence(value) else value


def _apart(value: object, given: Sequence[object]) -> object:
    """A result of an operator that may return memory of its operands (`reshape`), in memory of its own."""
    return fresh([value], tensors_in(given))[0] if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class _Numbered:
    """A tensor among the arguments of a call; equal numbers are one tensor of the program."""

    number: int
    tensor: Tensor


def _copied(value: object) -> object:
    if isinstance(value, Tensor):
        return clone_with_strides(value)
    if is_sequence(value):
        return [_copied(item) for item in value]
    return value


def absent_arguments(overload: Overload, given: Mapping[str, object]) -> tuple[str, ...]:
    """Written arguments that are None in a call."""
    return tuple(a.name for a in op_info(overload).arguments if a.writes and given[a.name] is None)
