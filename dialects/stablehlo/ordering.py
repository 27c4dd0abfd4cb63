"""Operations that change the order of elements: `reverse`, `sort`."""

from __future__ import annotations

from xdsl.dialects.builtin import I64, AnyTensorType, BoolAttr, DenseArrayBase, IntegerAttr, i1, i64
from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.stablehlo.checks import (
    check_body,
    check_counts,
    check_dimension,
    check_same_element,
    check_shape,
    tensor_of,
)


@irdl_op_definition
class ReverseOp(IRDLOperation):
    """`operand` with the order of elements reversed along `dimensions`."""

    name = "stablehlo.reverse"

    operand = operand_def(AnyTensorType)
    dimensions = prop_def(DenseArrayBase.constr(i64))
    result = result_def(AnyTensorType)

    traits = traits_def(Pure())

    def verify_(self) -> None:
        """The dimensions exist, each once, and the result is like the operand."""
        operand, result = tensor_of("operand", self.operand), tensor_of("result", self.result)
        check_same_element("result", result, "operand", operand)
        check_shape("result", result, operand.get_shape())
        dimensions = self.dimensions.get_values()
        for number, dimension in enumerate(dimensions):
            check_dimension(f"dimensions[{number}]", dimension, len(operand.get_shape()))
            if dimension in dimensions[:number]:
                raise VerifyException(f"dimensions names {dimension} twice")


@irdl_op_definition
class SortOp(IRDLOperation):
    """The operands with their elements, taken together, sorted along `dimension` by the comparator's order."""

    name = "stablehlo.sort"

    inputs = var_operand_def(AnyTensorType)
    dimension = opt_prop_def(IntegerAttr[I64])
    is_stable = opt_prop_def(BoolAttr)
    outputs = var_result_def(AnyTensorType)
    comparator = region_def("single_block")

    traits = traits_def(RecursiveMemoryEffect())

    def verify_(self) -> None:
        """All operands have one shape, results are like them, and the comparator compares two of each."""
        check_counts(self.inputs, self.outputs)
        types = [tensor_of(f"input {index}", value) for index, value in enumerate(self.inputs)]
        shape = types[0].get_shape()
        for index, (kind, output) in enumerate(zip(types, self.outputs, strict=True)):
            check_shape(f"input {index}", kind, shape)
            result = tensor_of(f"output {index}", output)
            check_shape(f"output {index}", result, shape)
            check_same_element(f"output {index}", result, f"input {index}", kind)
        if self.dimension is not None:
            last = self.dimension.value.data
            check_dimension("dimension", last + len(shape) if last < 0 else last, len(shape))
        pairs: list[Attribute] = [element for kind in types for element in (kind.element_type, kind.element_type)]
        check_body("the comparator", self.comparator, pairs, [i1])
