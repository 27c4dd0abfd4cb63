"""Numbers that are known only when a program runs: read from tensors, compared, and checked.

A number is a tensor without dimensions. Checks have no StableHLO form and are left out, as in PyTorch when it runs with
assertions turned off.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Operand, promoted
from vllm_ir.dialects import stablehlo


def _pair(b: Builder, left: Operand, right: Operand) -> tuple[SSAValue, SSAValue]:
    kind = promoted([left, right])
    return b.convert(left, kind), b.convert(right, kind)


def _comparison(direction: str) -> Converter:
    def convert(b: Builder, left: Operand, right: Operand) -> SSAValue:
        return b.compare(direction, *_pair(b, left, right))

    return convert


def _logic(operation: type[Operation]) -> Converter:
    def convert(b: Builder, left: Operand, right: Operand) -> SSAValue:
        one, other = _pair(b, left, right)
        return b.binary(operation, one, other)

    return convert


def _not(b: Builder, value: SSAValue) -> SSAValue:
    return b.unary(stablehlo.NotOp, value)


def _choice(b: Builder, condition: SSAValue, yes: Operand, no: Operand) -> SSAValue:
    kind = b.result.element_type
    return b.select(condition, b.convert(yes, kind), b.convert(no, kind))


def _item(b: Builder, value: SSAValue) -> SSAValue:
    return b.reshape(b.convert(value, b.result.element_type), ())


def _nothing(_b: Builder, *_args: object, **_keywords: object) -> list[SSAValue]:
    return []


CONVERSIONS: Mapping[str, Converter] = {
    "aten._local_scalar_dense.default": _item,
    **{f"python._operator.{name}": _comparison(name.upper()) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "python._operator.and_": _logic(stablehlo.AndOp),
    "python._operator.or_": _logic(stablehlo.OrOp),
    "python._operator.xor": _logic(stablehlo.XorOp),
    "python.torch.sym_not": _not,
    "python.torch.sym_ite": _choice,
    **{
        f"aten.{name}": _nothing
        for name in (
            *(
                "_assert_async.default",
                "_assert_async.msg",
                "_assert_scalar.default",
                "_assert_tensor_metadata.default",
            ),
            *("sym_constrain_range.default", "sym_constrain_range_for_size.default"),
        )
    },
}
"""Converters of this family."""
