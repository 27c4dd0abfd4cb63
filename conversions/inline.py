"""Replacing an operation by the body of a traced function, and values by its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import eq

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.trace import Traced
from vllm_ir.dialects.vllm_ir.function import root_of
from vllm_ir.dialects.vllm_ir.memory import ReadOp, RelayoutOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.build import CallBuilder


def inline(
    traced: Traced,
    operands: Sequence[SSAValue],
    rename: Callable[[Attribute], Attribute],
    b: CallBuilder,
) -> list[SSAValue]:
    """Insert the body with `operands` for its arguments, where `b` does; returns the values of its results.

    A result that is an argument's memory is that argument's final value.
    """
    values: dict[SSAValue, SSAValue] = dict(zip(traced.arguments, operands, strict=True))
    for inner in traced.body:
        if isinstance(inner, ReadOp):
            values[inner.result] = values[inner.buffer]
        else:
            _clone(inner, values, rename, b)
    return [_returned(traced, value, values) for value in traced.returned]


def replace_value(
    old: SSAValue, new: SSAValue, b: CallBuilder, is_same: Callable[[Attribute, Attribute], bool] = eq
) -> None:
    """Let `new`, which gets the name of `old`, be used for it; laid out alike, by an operation that `b` inserts.

    `is_same` says whether two types need none.
    """
    if not is_same(new.type, old.type):
        new = b.add(RelayoutOp.create(operands=[new], result_types=[old.type])).results[0]
    old.replace_all_uses_with(new)
    if new.name_hint != old.name_hint:
        new.name_hint = old.name_hint


def _clone(
    inner: Operation, values: dict[SSAValue, SSAValue], rename: Callable[[Attribute], Attribute], b: CallBuilder
) -> None:
    copy = type(inner).create(
        operands=[values[operand] for operand in inner.operands],
        result_types=[rename(result.type) for result in inner.results],
        properties=inner.properties,
        attributes=inner.attributes,
    )
    b.add(copy)
    values.update(zip(inner.results, copy.results, strict=True))


def _returned(traced: Traced, value: SSAValue, values: dict[SSAValue, SSAValue]) -> SSAValue:
    if not isinstance(value.type, BufferType):
        return values[value]
    root = root_of(value)
    for index, argument in enumerate(traced.arguments):
        if value is argument:
            final = traced.finals[index]
            return values[argument] if final is None else values[final]
    raise PassFailedException(
        f"the traced function returns a view of %{root.name_hint}; return a new tensor or the argument itself"
    )
