"""`stablehlo.pad`, in place of that of xdsl-jax, which takes padding values of type `i32` only."""

from __future__ import annotations

from xdsl.dialects.builtin import AnyTensorType, DenseArrayBase, i64
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.stablehlo.checks import check_rank, check_same_element, check_shape, tensor_of


@irdl_op_definition
class PadOp(IRDLOperation):
    """`operand` with `padding_value` added around and between its elements; negative edges take elements away."""

    name = "stablehlo.pad"

    operand = operand_def(AnyTensorType)
    padding_value = operand_def(AnyTensorType)
    edge_padding_low = prop_def(DenseArrayBase.constr(i64))
    edge_padding_high = prop_def(DenseArrayBase.constr(i64))
    interior_padding = prop_def(DenseArrayBase.constr(i64))
    result = result_def(AnyTensorType)

    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Each dimension has its padding, and the result is as large as that makes it."""
        operand, value = tensor_of("operand", self.operand), tensor_of("padding_value", self.padding_value)
        result = tensor_of("result", self.result)
        check_shape("padding_value", value, ())
        check_same_element("padding_value", value, "operand", operand)
        check_same_element("result", result, "operand", operand)
        shape = operand.get_shape()
        edges = (self.edge_padding_low, self.edge_padding_high, self.interior_padding)
        given = [list(edge.get_values()) for edge in edges]
        for name, entries in zip(("edge_padding_low", "edge_padding_high", "interior_padding"), given, strict=True):
            check_rank(name, entries, len(shape))
        for number in given[2]:
            if number < 0:
                raise VerifyException(f"interior_padding has the negative entry {number}")
        expected = [
            size if size < 0 else low + size + max(size - 1, 0) * between + high
            for size, low, high, between in zip(shape, *given, strict=True)
        ]
        check_shape("result", result, expected)
