"""`stablehlo.dynamic_update_slice`: a tensor with a slice of it replaced."""

from __future__ import annotations

from xdsl.dialects.builtin import AnyTensorType, IntegerType
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def, var_operand_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.stablehlo.checks import check_rank, check_same_element, check_shape, tensor_of


@irdl_op_definition
class DynamicUpdateSliceOp(IRDLOperation):
    """`operand` with the elements from `start_indices` on, which are clamped into it, replaced by `update`."""

    name = "stablehlo.dynamic_update_slice"

    operand = operand_def(AnyTensorType)
    update = operand_def(AnyTensorType)
    start_indices = var_operand_def(AnyTensorType)
    result = result_def(AnyTensorType)

    traits = traits_def(Pure())

    def verify_(self) -> None:
        """Types agree, the update fits into the operand, and there is one scalar start for each dimension."""
        operand, update = tensor_of("operand", self.operand), tensor_of("update", self.update)
        result = tensor_of("result", self.result)
        shape = operand.get_shape()
        check_same_element("update", update, "operand", operand)
        check_same_element("result", result, "operand", operand)
        check_shape("result", result, shape)
        check_rank("update", update.get_shape(), len(shape))
        check_rank("start_indices", self.start_indices, len(shape))
        for dimension, (size, whole) in enumerate(zip(update.get_shape(), shape, strict=True)):
            if size > whole >= 0:
                raise VerifyException(f"update has {size} elements in dimension {dimension}, the operand {whole}")
        first = None
        for index, value in enumerate(self.start_indices):
            start = tensor_of(f"start index {index}", value)
            check_shape(f"start index {index}", start, ())
            if not isinstance(start.element_type, IntegerType):
                raise VerifyException(f"start index {index} has element type {start.element_type}, not an integer")
            first = first or start
            check_same_element(f"start index {index}", start, "start index 0", first)
