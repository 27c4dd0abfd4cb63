"""What XLA's CPU client does not compute as the text says.

It sets subnormal numbers to zero, as operands and as results. Which values are subnormal is mostly a question of data,
and numbers that small are noise in a model. But a program that calculates with a subnormal constant, or multiplies by
one at the edge, means them: it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    LocationAttr,
    ModuleOp,
    NameLoc,
    bf16,
    f32,
    f64,
)
from xdsl.ir import Attribute, Operation, SSAValue

_SMALLEST_NORMAL: Mapping[Attribute, float] = {f64: 2.0**-1022, f32: 2.0**-126, bf16: 2.0**-126}
"""f16 and the 8-bit types are computed in f32, which holds all their numbers as normal ones."""

_MOVES = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert", "stablehlo.transpose"})
_SCALES = frozenset({"stablehlo.multiply", "stablehlo.divide", "stablehlo.power"})
_CALCULATES = _SCALES | {"stablehlo.add", "stablehlo.subtract", "stablehlo.maximum", "stablehlo.minimum"}


def limit_of(module: ModuleOp) -> str | None:
    """Why XLA's CPU client would not compute what a StableHLO module says; None if nothing shows that it would not."""
    for op in module.walk():
        if op.name != "stablehlo.constant":
            continue
        value = _scalar(op.properties.get("value"))
        if value is None or (smallest := _SMALLEST_NORMAL.get(value[0])) is None or not 0 < abs(value[1]) <= smallest:
            continue
        refused = _SCALES if abs(value[1]) == smallest else _CALCULATES
        for user in _users(op.results[0]):
            if user.name in refused:
                return (
                    f"{_place(user)}{user.name} takes the constant {value[1]!r}, whose results are subnormal; "
                    "XLA's CPU client sets subnormal numbers to zero: scale the values, or use another backend"
                )
    return None


def _scalar(attribute: Attribute | None) -> tuple[Attribute, float] | None:
    """Element type and value of a constant that is one number."""
    if not isinstance(attribute, DenseIntOrFPElementsAttr):
        return None
    element = cast(Attribute, attribute.get_element_type())
    if not isinstance(element, AnyFloat) or len(attribute.data.data) != element.bitwidth // 8:
        return None
    return element, float(next(iter(attribute.get_values())))


def _users(value: SSAValue) -> Iterator[Operation]:
    """Operations that take a value, or the same number in another shape."""
    for use in value.uses:
        if use.operation.name in _MOVES:
            yield from _users(use.operation.results[0])
        else:
            yield use.operation


def _place(op: Operation) -> str:
    location: Attribute = op.location
    while isinstance(location, NameLoc) and isinstance(location.location, LocationAttr):
        location = location.location
    return f"{location.filename.data}:{location.line.data}: " if isinstance(location, FileLineColLoc) else ""
