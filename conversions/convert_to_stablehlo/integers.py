"""Arithmetic on the program's integers, which are `tensor<i64>`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.division import floor_quotient
from vllm_ir.dialects import stablehlo


def _binary(operation: type[Operation]) -> Callable[[Builder, SSAValue, SSAValue], SSAValue]:
    return lambda b, left, right: b.binary(operation, left, right)


INTEGER_CONVERSIONS: Mapping[type[Operation], Callable[..., SSAValue]] = {
    arith.AddiOp: _binary(stablehlo.AddOp),
    arith.SubiOp: _binary(stablehlo.SubtractOp),
    arith.MuliOp: _binary(stablehlo.MultiplyOp),
    arith.MaxSIOp: _binary(stablehlo.MaximumOp),
    arith.MinSIOp: _binary(stablehlo.MinimumOp),
    arith.FloorDivSIOp: floor_quotient,
}
"""For each operation what it becomes, given its operands."""
