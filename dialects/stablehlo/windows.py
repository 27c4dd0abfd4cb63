"""Operations over sliding windows: `reduce_window`, `select_and_scatter`."""

from __future__ import annotations

from xdsl.dialects.builtin import I64, AnyTensorType, DenseArrayBase, DenseIntOrFPElementsAttr, i1, i64
from xdsl.irdl import (
    IRDLOperation,
    SameVariadicOperandSize,
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
from xdsl.traits import RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.stablehlo.checks import (
    check_body,
    check_positive,
    check_rank,
    check_same_element,
    check_shape,
    pairs_of,
    tensor_of,
)


def padding_pairs(padding: DenseIntOrFPElementsAttr | None, rank: int) -> list[tuple[int, int]]:
    """Elements added before and behind each dimension."""
    return [(0, 0)] * rank if padding is None else pairs_of("padding", padding, rank)


def window_count(size: int, window: int, stride: int, low: int, high: int, dilation: int = 1, base: int = 1) -> int:
    """How many windows fit into a dimension."""
    whole = (size - 1) * base + 1 if size else 0
    reach = (window - 1) * dilation + 1
    room = low + whole + high - reach
    return room // stride + 1 if room >= 0 else 0


def _values(given: DenseArrayBase[I64] | None, rank: int) -> list[int]:
    return [1] * rank if given is None else list(given.get_values())


@irdl_op_definition
class ReduceWindowOp(IRDLOperation):
    """Each window of the inputs reduced to one element by `body`, beginning with `init_values`."""

    name = "stablehlo.reduce_window"

    inputs = var_operand_def(AnyTensorType)
    init_values = var_operand_def(AnyTensorType)
    window_dimensions = prop_def(DenseArrayBase.constr(i64))
    window_strides = opt_prop_def(DenseArrayBase.constr(i64))
    base_dilations = opt_prop_def(DenseArrayBase.constr(i64))
    window_dilations = opt_prop_def(DenseArrayBase.constr(i64))
    padding = opt_prop_def(DenseIntOrFPElementsAttr)
    outputs = var_result_def(AnyTensorType)
    body = region_def("single_block")

    irdl_options = (SameVariadicOperandSize(),)
    traits = traits_def(RecursiveMemoryEffect())

    def verify_(self) -> None:
        """Windows have an entry for each dimension, results have one element per window, and `body` fits."""
        if not self.inputs or not len(self.inputs) == len(self.init_values) == len(self.outputs):
            counts = f"{len(self.inputs)} inputs, {len(self.init_values)} initial values, {len(self.outputs)} outputs"
            raise VerifyException(counts)
        types = [tensor_of(f"input {index}", value) for index, value in enumerate(self.inputs)]
        shape = types[0].get_shape()
        rank = len(shape)
        given = {
            "window_dimensions": _values(self.window_dimensions, rank),
            "window_strides": _values(self.window_strides, rank),
            "base_dilations": _values(self.base_dilations, rank),
            "window_dilations": _values(self.window_dilations, rank),
        }
        for name, entries in given.items():
            check_rank(name, entries, rank)
            check_positive(name, entries)
        expected = self._windows(shape)
        for index, (kind, initial, output) in enumerate(zip(types, self.init_values, self.outputs, strict=True)):
            result, start = tensor_of(f"output {index}", output), tensor_of(f"initial value {index}", initial)
            check_shape(f"input {index}", kind, shape)
            check_shape(f"initial value {index}", start, ())
            check_shape(f"output {index}", result, expected)
            check_same_element(f"initial value {index}", start, f"input {index}", kind)
            check_same_element(f"output {index}", result, f"input {index}", kind)
        elements = [kind.element_type for kind in types]
        check_body("the body", self.body, [*elements, *elements], elements)

    def _windows(self, shape: tuple[int, ...]) -> list[int]:
        rank = len(shape)
        return [
            window_count(size, window, stride, low, high, dilation, base) if size >= 0 else size
            for size, window, stride, (low, high), dilation, base in zip(
                shape,
                _values(self.window_dimensions, rank),
                _values(self.window_strides, rank),
                padding_pairs(self.padding, rank),
                _values(self.window_dilations, rank),
                _values(self.base_dilations, rank),
                strict=True,
            )
        ]


@irdl_op_definition
class SelectAndScatterOp(IRDLOperation):
    """`source` scattered to the elements of `operand` that `select` chooses in each window, combined by `scatter`."""

    name = "stablehlo.select_and_scatter"

    operand = operand_def(AnyTensorType)
    source = operand_def(AnyTensorType)
    init_value = operand_def(AnyTensorType)
    window_dimensions = opt_prop_def(DenseArrayBase.constr(i64))
    window_strides = opt_prop_def(DenseArrayBase.constr(i64))
    padding = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(AnyTensorType)
    select = region_def("single_block")
    scatter = region_def("single_block")

    traits = traits_def(RecursiveMemoryEffect())

    def verify_(self) -> None:
        """The source has one element per window, and the regions fit."""
        operand, source = tensor_of("operand", self.operand), tensor_of("source", self.source)
        shape = operand.get_shape()
        rank = len(shape)
        check_same_element("source", source, "operand", operand)
        check_shape("result", tensor_of("result", self.result), shape)
        check_shape("init_value", tensor_of("init_value", self.init_value), ())
        windows, strides = _values(self.window_dimensions, rank), _values(self.window_strides, rank)
        pads = padding_pairs(self.padding, rank)
        for name, entries in (("window_dimensions", windows), ("window_strides", strides)):
            check_rank(name, entries, rank)
            check_positive(name, entries)
        counts = [
            window_count(size, window, stride, *pad) if size >= 0 else size
            for size, window, stride, pad in zip(shape, windows, strides, pads, strict=True)
        ]
        check_shape("source", source, counts)
        element = operand.element_type
        check_body("select", self.select, [element, element], [i1])
        check_body("scatter", self.scatter, [element, element], [element])
