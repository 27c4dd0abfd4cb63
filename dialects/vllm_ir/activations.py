"""Gated activations."""

from xdsl.dialects.builtin import DYNAMIC_INDEX, I64, DenseArrayBase
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.vllm_ir.high_level import (
    OperandEffects,
    TensorOrBuffer,
    verify_donated,
    verify_element_type,
    verify_float,
    verify_one_device,
)
from vllm_ir.dialects.vllm_ir.types import shape_of, shape_text


@irdl_op_definition
class SiluAndMulOp(IRDLOperation):
    """`silu` of the first half of x's last dimension times the second half."""

    name = "vllm_ir.silu_and_mul"

    x = operand_def(TensorOrBuffer)
    result = result_def(TensorOrBuffer)
    donated = opt_prop_def(DenseArrayBase[I64])

    traits = traits_def(OperandEffects())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    def verify_(self) -> None:
        """The result is like x, with half its last dimension."""
        verify_float("x", self.x.type)
        verify_donated(self)
        verify_one_device(self)
        verify_element_type("result", self.result.type, "x", self.x.type)
        shape, result = shape_of(self.x.type), shape_of(self.result.type)
        if not shape:
            raise VerifyException("x is a scalar, its last dimension must be split in halves")
        last = shape[-1]
        if last != DYNAMIC_INDEX and last % 2:
            raise VerifyException(f"the last dimension of x is {last}, which is odd")
        half = (*shape[:-1], DYNAMIC_INDEX if last == DYNAMIC_INDEX else last // 2)
        # Half of an unknown size may well be known, where the program says so.
        if result[:-1] != half[:-1] or len(result) != len(half) or DYNAMIC_INDEX != half[-1] != result[-1]:
            raise VerifyException(f"result has shape {shape_text(result)}, the half of x {shape_text(half)}")
