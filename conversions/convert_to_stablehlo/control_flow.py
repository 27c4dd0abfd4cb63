"""Control flow over sub-graphs: `torch.cond` and `while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from xdsl.dialects.builtin import i1
from xdsl.ir import Attribute, Region, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Rejected
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Operand
from vllm_ir.dialects import stablehlo
from vllm_ir.frontends.fx.values import is_sequence

CallFunction: TypeAlias = Callable[[str, Sequence[SSAValue]], Sequence[SSAValue]]
"""Converts the body of a function of the module, for operands, where the builder is."""


def _cond(
    b: Builder, call: CallFunction, predicate: Operand, yes: str, no: str, operands: Sequence[SSAValue] = ()
) -> Sequence[SSAValue]:
    kinds = b.results
    chosen = b.reshape(b.convert(predicate, i1), ())
    values = _values(operands)

    def branch(name: str) -> Region:
        return b.region((), lambda: _checked(name, call(name, values), kinds))

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
    if not isinstance(carried, list | tuple) or len(carried) != len(b.results):
        raise Rejected(f"it carries {carried}, which are not its {len(b.results)} results")
    start = [
        value if isinstance(value, SSAValue) else b.convert(value, b.results[i].element_type)
        for i, value in enumerate(carried)
    ]
    kinds = [b.plain(value.type) for value in start]
    rest = _values(more)

    def test(*values: SSAValue) -> Sequence[SSAValue]:
        [result, *others] = call(condition, [*values, *rest]) or [None]
        if others or result is None or b.plain(result.type).element_type != i1:
            raise Rejected(f"@{condition} does not return one truth value")
        return [b.reshape(result, ())]

    def step(*values: SSAValue) -> Sequence[SSAValue]:
        return _checked(body, call(body, [*values, *rest]), kinds)

    return b.emit_all(stablehlo.WhileOp, start, kinds, regions=[b.region(kinds, test), b.region(kinds, step)])


def _values(operands: object) -> list[SSAValue]:
    """The operands of a function, which the IR does not check against a schema."""
    if not is_sequence(operands) or not all(isinstance(operand, SSAValue) for operand in operands):
        raise Rejected(f"the operands of its functions are {operands}, not a list of tensors")
    return [cast(SSAValue, operand) for operand in operands]


def _checked(name: str, results: Sequence[SSAValue], kinds: Sequence[Attribute]) -> Sequence[SSAValue]:
    """The results of a function, of the types that they must have."""
    if [result.type for result in results] != list(kinds):
        raise Rejected(f"@{name} does not return what the call gives: other types, or another number of results")
    return results


HIGHER_ORDER: Mapping[str, Callable[..., Sequence[SSAValue]]] = {
    "higher_order.cond": _cond,
    "higher_order.while_loop": _while_loop,
}
"""Converters of higher-order operators: they take the builder, `CallFunction`, and the call's arguments."""
