"""Control flow over sub-graphs: `torch.cond` and `while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from xdsl.dialects.builtin import i1
from xdsl.ir import Region, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Operand
from vllm_ir.dialects import stablehlo

CallFunction: TypeAlias = Callable[[str, Sequence[SSAValue]], Sequence[SSAValue]]
"""Converts the body of a function of the module, for operands, where the builder is."""


def _cond(
    b: Builder, call: CallFunction, predicate: Operand, yes: str, no: str, operands: Sequence[SSAValue] = ()
) -> Sequence[SSAValue]:
    kinds = b.results
    chosen = b.reshape(b.convert(predicate, i1), ())

    def branch(name: str) -> Region:
        return b.region((), lambda: call(name, operands))

    regions = [branch(yes), branch(no)]
    return b.emit_all(stablehlo.IfOp, (chosen,), kinds, regions=regions)


def _while_loop(
    b: Builder,
    call: CallFunction,
    condition: str,
    body: str,
    carried: Sequence[Operand],
    more: Sequence[Operand] = (),
) -> Sequence[SSAValue]:
    start = [
        value if isinstance(value, SSAValue) else b.convert(value, b.results[i].element_type)
        for i, value in enumerate(carried)
    ]
    kinds = [b.plain(value.type) for value in start]
    rest = [cast(SSAValue, value) for value in more]

    def test(*values: SSAValue) -> Sequence[SSAValue]:
        return [b.reshape(call(condition, [*values, *rest])[0], ())]

    def step(*values: SSAValue) -> Sequence[SSAValue]:
        return call(body, [*values, *rest])

    return b.emit_all(stablehlo.WhileOp, start, kinds, regions=[b.region(kinds, test), b.region(kinds, step)])


HIGHER_ORDER: Mapping[str, Callable[..., Sequence[SSAValue]]] = {
    "higher_order.cond": _cond,
    "higher_order.while_loop": _while_loop,
}
"""Converters of higher-order operators: they take the builder, `CallFunction`, and the call's arguments."""
