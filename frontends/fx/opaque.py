"""Functional forms of writing operators that a compiler cannot look into.

Inductor takes `auto_functionalized` apart and decides by itself which copies it needs, without asking whether another
operand shares the memory. An opaque operator that copies, calls and returns the new values gives it nothing to decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch._library.utils import is_builtin

from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload, clone_with_strides, overloads_of, packet_of, schema_of
from vllm_ir.frontends.fx.values import is_sequence
from vllm_ir.frontends.ops.torch_internals import Kernel, define_overload

_NAMESPACE = "vllm_ir_functional"
_LIBRARY = torch.library.Library(_NAMESPACE, "DEF")
_WRITE_MARK = re.compile(r"\(\w+(\|\w+)*!\)")


@cache
def opaque_functional(overload: Overload, absent: tuple[str, ...] = ()) -> Overload | None:
    """An operator with the arguments of `overload` that returns its results and the new values of what it writes.

    `absent` names written arguments that are None; they have no new value. None if the operator is PyTorch's own, or
    returns one of its operands.
    """
    schema = schema_of(overload)
    if is_builtin(overload) or any(result.alias_info is not None for result in schema.returns):
        return None
    names = [a.name for a in op_info(overload).arguments]
    kept = tuple(a.name for a in op_info(overload).arguments if a.writes and a.name not in absent)
    name = "_".join([re.sub(r"\W", "_", str(overload)), *absent])

    def run(*args: object, **kwargs: object) -> object:
        return _run_on_copies(overload, kept, {**dict(zip(names, args, strict=False)), **kwargs})

    define_overload(_LIBRARY, _NAMESPACE, name, _signature(overload, kept), cast(Kernel, run), cast(Kernel, run))
    packet = packet_of(_NAMESPACE, name)
    return None if packet is None else overloads_of(packet)[0]


def _signature(overload: Overload, kept: tuple[str, ...]) -> str:
    text = str(schema_of(overload))
    arguments = _WRITE_MARK.sub("", text[text.index("(") : text.rindex("->")].strip())
    kinds = {a.name: str(a.type) for a in schema_of(overload).arguments}
    results = [str(result.type) for result in schema_of(overload).returns]
    results += ["Tensor[]" if kinds[name].startswith("List") else "Tensor" for name in kept]
    return f"{arguments} -> ({', '.join(results)})"


def _run_on_copies(overload: Overload, written: tuple[str, ...], given: Mapping[str, object]) -> object:
    """Call `overload` on copies of what it writes; whatever else it takes is read as it is, even if it is the same."""
    bound = dict(given)
    for name in written:
        bound[name] = _copied(given[name])
    own: object = overload(**bound)
    results = [] if own is None else list(own) if is_sequence(own) else [own]
    results.extend(bound[name] for name in written)
    return results[0] if len(results) == 1 else tuple(results)


def _copied(value: object) -> object:
    if isinstance(value, Tensor):
        return clone_with_strides(value)
    if is_sequence(value):
        return [_copied(item) for item in value]
    return value


def absent_arguments(overload: Overload, given: Mapping[str, object]) -> tuple[str, ...]:
    """Written arguments that are None in a call."""
    return tuple(a.name for a in op_info(overload).arguments if a.writes and given[a.name] is None)
