"""Gated activations."""

from xdsl.dialects.builtin import DYNAMIC_INDEX, I64, DenseArrayBase, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
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
    verify_element_type,
    verify_float,
    verify_one_device,
)
from vllm_ir.dialects.vllm_ir.types import shape_of, shape_text


def _verify_gated(x: Attribute, result: Attribute) -> None:
    """The result is like x, with half its last dimension."""
    verify_float("x", x)
    verify_element_type("result", result, "x", x)
    shape, got = shape_of(x), shape_of(result)
    if not shape:
        raise VerifyException("x is a scalar, its last dimension must be split in halves")
    last = shape[-1]
    if last != DYNAMIC_INDEX and last % 2:
        raise VerifyException(f"the last dimension of x is {last}, which is odd")
    half = (*shape[:-1], DYNAMIC_INDEX if last == DYNAMIC_INDEX else last // 2)
    # Half of an unknown size may well be known, where the program says so.
    if got[:-1] != half[:-1] or len(got) != len(half) or DYNAMIC_INDEX != half[-1] != got[-1]:
        raise VerifyException(f"result has shape {shape_text(got)}, the half of x {shape_text(half)}")


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
        verify_donated(self)
        verify_one_device(self)
        _verify_gated(self.x.type, self.result.type)


@irdl_op_definition
class GeluAndMulOp(IRDLOperation):
    """`gelu` of the first half of x's last dimension times the second half.

    `approximate` is "none" for the function itself, by `erf`, or "tanh" for its usual approximation.
    """

    name = "vllm_ir.gelu_and_mul"

    x = operand_def(TensorOrBuffer)
    result = result_def(TensorOrBuffer)
    approximate = prop_def(StringAttr)
    donated = opt_prop_def(DenseArrayBase[I64])

    traits = traits_def(OperandEffects())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    def verify_(self) -> None:
        """The result is like x, with half its last dimension, and the form is one of the two."""
        verify_donated(self)
        verify_one_device(self)
        if (form := self.approximate.data) not in ("none", "tanh"):
            raise VerifyException(f'approximate is "{form}", which is neither "none" nor "tanh"')
        _verify_gated(self.x.type, self.result.type)
