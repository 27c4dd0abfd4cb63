"""Normalizations over the last dimension."""

from __future__ import annotations

from xdsl.dialects.builtin import DYNAMIC_INDEX, I64, DenseArrayBase, Float64Type, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.vllm_ir.high_level import (
    OperandEffects,
    TensorOrBuffer,
    verify_donated,
    verify_float,
    verify_one_device,
    verify_same_shape,
)
from vllm_ir.dialects.vllm_ir.types import shape_of


def _verify_norm(x: Attribute, weight: SSAValue | None, variance_size: IntegerAttr[I64] | None) -> None:
    verify_float("x", x)
    if weight is not None:
        verify_float("weight", weight.type)
    if not shape_of(x):
        raise VerifyException("x is a scalar, the norm needs a last dimension")
    if variance_size is None:
        return
    size, last = variance_size.value.data, shape_of(x)[-1]
    if size < 1 or (last != DYNAMIC_INDEX and size > last):
        upper = "?" if last == DYNAMIC_INDEX else last
        raise VerifyException(f"variance_size {size} is not in [1, {upper}], the last dimension of x")


@irdl_op_definition
class RmsNormOp(IRDLOperation):
    """Root-mean-square norm of `x` over its last dimension, in float32, rounded to x's type and then times `weight`.

    `variance_size` limits the mean to the first elements of the last dimension.
    """

    name = "vllm_ir.rms_norm"

    x = operand_def(TensorOrBuffer)
    weight = opt_operand_def(TensorOrBuffer)
    result = result_def(TensorOrBuffer)
    epsilon = prop_def(FloatAttr[Float64Type])  # f32 would turn 1e-5 into 9.99999975e-06
    variance_size = opt_prop_def(IntegerAttr[I64])
    donated = opt_prop_def(DenseArrayBase[I64])

    traits = traits_def(OperandEffects())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$x `:` type($x) (`weight` $weight^ `:` type($weight))? attr-dict `->` type($result)"

    def verify_(self) -> None:
        """Shapes are those of x, elements are floating-point."""
        _verify_norm(self.x.type, self.weight, self.variance_size)
        verify_donated(self)
        verify_one_device(self)
        verify_same_shape("result", self.result.type, "x", self.x.type)


@irdl_op_definition
class FusedAddRmsNormOp(IRDLOperation):
    """`rms_norm` of the float32 sum of `x` and `x_residual`; the sum, rounded to x's type, is the second result."""

    name = "vllm_ir.fused_add_rms_norm"

    x = operand_def(TensorOrBuffer)
    x_residual = operand_def(TensorOrBuffer)
    weight = opt_operand_def(TensorOrBuffer)
    normed = result_def(TensorOrBuffer)
    residual = result_def(TensorOrBuffer)
    epsilon = prop_def(FloatAttr[Float64Type])
    variance_size = opt_prop_def(IntegerAttr[I64])
    donated = opt_prop_def(DenseArrayBase[I64])

    traits = traits_def(OperandEffects())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$x `,` $x_residual `:` type($x) `,` type($x_residual) (`weight` $weight^ `:` type($weight))? attr-dict "
        "`->` type($normed) `,` type($residual)"
    )

    def verify_(self) -> None:
        """Shapes are those of x, elements are floating-point."""
        _verify_norm(self.x.type, self.weight, self.variance_size)
        verify_donated(self)
        verify_one_device(self)
        verify_float("x_residual", self.x_residual.type)
        verify_same_shape("x_residual", self.x_residual.type, "x", self.x.type)
        verify_same_shape("normed", self.normed.type, "x", self.x.type)
        verify_same_shape("residual", self.residual.type, "x", self.x.type)
