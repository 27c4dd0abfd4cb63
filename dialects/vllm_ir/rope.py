"""Rotary position embedding."""

from xdsl.dialects.builtin import I1, I64, DenseArrayBase, IntegerAttr, IntegerType
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
    verify_float,
    verify_one_device,
    verify_same_shape,
)
from vllm_ir.dialects.vllm_ir.types import element_type_of


@irdl_op_definition
class RotaryEmbeddingOp(IRDLOperation):
    """Rotate the heads of `query` and `key` by the angles of their `positions`.

    `cos_sin_cache` has a row of cosines and sines for each position. Pairs are halves of a head if `is_neox`, else
    neighbours. Only the first `rotary_dim` elements of a head are rotated.
    """

    name = "vllm_ir.rotary_embedding"

    positions = operand_def(TensorOrBuffer)
    query = operand_def(TensorOrBuffer)
    key = operand_def(TensorOrBuffer)
    cos_sin_cache = operand_def(TensorOrBuffer)
    rotated_query = result_def(TensorOrBuffer)
    rotated_key = result_def(TensorOrBuffer)
    head_size = prop_def(IntegerAttr[I64])
    is_neox = prop_def(IntegerAttr[I1])
    rotary_dim = opt_prop_def(IntegerAttr[I64])
    donated = opt_prop_def(DenseArrayBase[I64])

    traits = traits_def(OperandEffects())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$positions `,` $query `,` $key `,` $cos_sin_cache attr-dict `:` type($positions) `,` type($query) `,` "
        "type($key) `,` type($cos_sin_cache) `->` type($rotated_query) `,` type($rotated_key)"
    )

    def verify_(self) -> None:
        """Results are like query and key, and the rotated part fits into a head."""
        verify_donated(self)
        verify_one_device(self)
        if not isinstance(positions := element_type_of(self.positions.type), IntegerType):
            raise VerifyException(f"positions has element type {positions}, which is not an integer")
        for name, value in (("query", self.query), ("key", self.key), ("cos_sin_cache", self.cos_sin_cache)):
            verify_float(name, value.type)
        verify_same_shape("rotated_query", self.rotated_query.type, "query", self.query.type)
        verify_same_shape("rotated_key", self.rotated_key.type, "key", self.key.type)
        size = self.head_size.value.data
        if size < 1:
            raise VerifyException(f"head_size {size} is not positive")
        if self.rotary_dim is not None and not 2 <= (dim := self.rotary_dim.value.data) <= size:
            raise VerifyException(f"rotary_dim {dim} is not in [2, {size}], the head size")
