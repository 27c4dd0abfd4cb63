"""Collectives: operations that exchange data among the processes that run one program.

`replica_groups` has one row per group of processes; a process takes part in the group that it is listed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import (
    I64,
    AnyTensorType,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
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
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.stablehlo.checks import (
    check_body,
    check_dimension,
    check_outputs,
    check_same_element,
    check_shape,
    tensor_of,
)

_PROCESS_NUMBER = TensorType(IntegerType(32, Signedness.UNSIGNED), [])


@irdl_attr_definition
class ChannelHandleAttr(ParametrizedAttribute):
    """Which exchange an operation takes part in: `<handle = 1, type = 0>`."""

    name = "stablehlo.channel_handle"

    handle: IntegerAttr[I64]
    type: IntegerAttr[I64]

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Parse `<handle = .., type = ..>`."""
        numbers: list[Attribute] = []
        with parser.in_angle_brackets():
            for field in ("handle", "type"):
                if numbers:
                    parser.parse_punctuation(",")
                parser.parse_keyword(field)
                parser.parse_punctuation("=")
                numbers.append(IntegerAttr(parser.parse_integer(), i64))
        return numbers

    def print_parameters(self, printer: Printer) -> None:
        """Print `<handle = .., type = ..>`."""
        with printer.in_angle_brackets():
            printer.print_string(f"handle = {self.handle.value.data}, type = {self.type.value.data}")


def group_rows(groups: DenseIntOrFPElementsAttr) -> list[list[int]]:
    """The processes of each group; `VerifyException` if the attribute is no matrix, or names a process twice."""
    shape = groups.get_shape()
    if len(shape) != 2:
        raise VerifyException(f"replica_groups has {len(shape)} dimensions, expected 2: a row for each group")
    flat = list(cast(Sequence[int], groups.get_values()))
    named = [number for number in flat if number >= 0]  # -1 fills up rows of unequal length
    for number, count in Counter(named).items():
        if count > 1:
            raise VerifyException(f"replica_groups names process {number} twice")
    return [flat[row * shape[1] : (row + 1) * shape[1]] for row in range(shape[0])]


def _divide(shape: list[int], dimension: int, count: int) -> None:
    """Make a dimension one of its `count` equal pieces."""
    if count < 1 or shape[dimension] % count:
        raise VerifyException(f"dimension {dimension} of size {shape[dimension]} has no {count} equal pieces")
    shape[dimension] //= count


@irdl_op_definition
class AllReduceOp(IRDLOperation):
    """The operands of all processes of a group, combined element by element."""

    name = "stablehlo.all_reduce"

    inputs = var_operand_def(AnyTensorType)
    replica_groups = prop_def(DenseIntOrFPElementsAttr)
    channel_handle = opt_prop_def(ChannelHandleAttr)
    use_global_device_ids = opt_prop_def(UnitAttr)
    outputs = var_result_def(AnyTensorType)
    computation = region_def("single_block")

    traits = traits_def(MemoryWriteEffect())

    def verify_(self) -> None:
        """Results are like operands, and the computation combines two scalars."""
        group_rows(self.replica_groups)
        check_outputs(self.inputs, self.outputs, lambda shape: shape)
        element = tensor_of("input 0", self.inputs[0]).element_type
        check_body("the computation", self.computation, [element, element], [element])


@irdl_op_definition
class AllGatherOp(IRDLOperation):
    """The operands of all processes of a group, one behind the other along `all_gather_dim`."""

    name = "stablehlo.all_gather"

    inputs = var_operand_def(AnyTensorType)
    all_gather_dim = prop_def(IntegerAttr[I64])
    replica_groups = prop_def(DenseIntOrFPElementsAttr)
    channel_handle = opt_prop_def(ChannelHandleAttr)
    use_global_device_ids = opt_prop_def(UnitAttr)
    outputs = var_result_def(AnyTensorType)

    traits = traits_def(MemoryWriteEffect())

    def verify_(self) -> None:
        """The gathered dimension is as large as all pieces together."""
        rows, dimension = group_rows(self.replica_groups), self.all_gather_dim.value.data

        def gathered(shape: list[int]) -> list[int]:
            check_dimension("all_gather_dim", dimension, len(shape))
            shape[dimension] *= len(rows[0]) if rows else 1
            return shape

        check_outputs(self.inputs, self.outputs, gathered)


@irdl_op_definition
class ReduceScatterOp(IRDLOperation):
    """The operands of all processes of a group, combined; each process has the result's piece of its place."""

    name = "stablehlo.reduce_scatter"

    operand = operand_def(AnyTensorType)
    scatter_dimension = prop_def(IntegerAttr[I64])
    replica_groups = prop_def(DenseIntOrFPElementsAttr)
    channel_handle = opt_prop_def(ChannelHandleAttr)
    use_global_device_ids = opt_prop_def(UnitAttr)
    result = result_def(AnyTensorType)
    computation = region_def("single_block")

    traits = traits_def(MemoryWriteEffect())

    def verify_(self) -> None:
        """The scattered dimension is divided by the number of processes of a group."""
        rows, dimension = group_rows(self.replica_groups), self.scatter_dimension.value.data
        operand, result = tensor_of("operand", self.operand), tensor_of("result", self.result)
        expected = list(operand.get_shape())
        check_dimension("scatter_dimension", dimension, len(expected))
        _divide(expected, dimension, len(rows[0]) if rows else 1)
        check_shape("result", result, expected)
        check_same_element("result", result, "operand", operand)
        check_body("the computation", self.computation, [operand.element_type] * 2, [operand.element_type])


@irdl_op_definition
class AllToAllOp(IRDLOperation):
    """Each process sends its pieces along `split_dimension` to the others and joins what it gets."""

    name = "stablehlo.all_to_all"

    inputs = var_operand_def(AnyTensorType)
    split_dimension = prop_def(IntegerAttr[I64])
    concat_dimension = prop_def(IntegerAttr[I64])
    split_count = prop_def(IntegerAttr[I64])
    replica_groups = prop_def(DenseIntOrFPElementsAttr)
    channel_handle = opt_prop_def(ChannelHandleAttr)
    outputs = var_result_def(AnyTensorType)

    traits = traits_def(MemoryWriteEffect())

    def verify_(self) -> None:
        """There are as many pieces as processes in a group."""
        rows, count = group_rows(self.replica_groups), self.split_count.value.data
        split, concat = self.split_dimension.value.data, self.concat_dimension.value.data
        if rows and len(rows[0]) != count:
            raise VerifyException(f"split_count is {count}, a group has {len(rows[0])} processes")

        def exchanged(shape: list[int]) -> list[int]:
            check_dimension("split_dimension", split, len(shape))
            check_dimension("concat_dimension", concat, len(shape))
            _divide(shape, split, count)
            shape[concat] *= count
            return shape

        check_outputs(self.inputs, self.outputs, exchanged)


@irdl_op_definition
class CollectivePermuteOp(IRDLOperation):
    """The operand of the process that is paired with this one; zeros where there is none."""

    name = "stablehlo.collective_permute"

    operand = operand_def(AnyTensorType)
    source_target_pairs = prop_def(DenseIntOrFPElementsAttr)
    channel_handle = opt_prop_def(ChannelHandleAttr)
    result = result_def(AnyTensorType)

    traits = traits_def(MemoryWriteEffect())

    def verify_(self) -> None:
        """Pairs have two processes, and no process sends or receives twice."""
        shape = self.source_target_pairs.get_shape()
        if len(shape) != 2 or shape[1] != 2:
            raise VerifyException(f"source_target_pairs has shape {list(shape)}, expected rows of two processes")
        flat = cast(Sequence[int], self.source_target_pairs.get_values())
        for name, side in (("source", flat[::2]), ("target", flat[1::2])):
            if len(set(side)) != len(side):
                raise VerifyException(f"source_target_pairs names a {name} twice: {side}")
        _check_like(self)


@irdl_op_definition
class CollectiveBroadcastOp(IRDLOperation):
    """The operand of the first process of a group."""

    name = "stablehlo.collective_broadcast"

    operand = operand_def(AnyTensorType)
    replica_groups = prop_def(DenseIntOrFPElementsAttr)
    channel_handle = opt_prop_def(ChannelHandleAttr)
    result = result_def(AnyTensorType)

    traits = traits_def(MemoryWriteEffect())

    def verify_(self) -> None:
        """The result is like the operand."""
        group_rows(self.replica_groups)
        _check_like(self)


def _check_like(op: CollectivePermuteOp | CollectiveBroadcastOp) -> None:
    operand, result = tensor_of("operand", op.operand), tensor_of("result", op.result)
    check_shape("result", result, operand.get_shape())
    check_same_element("result", result, "operand", operand)


@irdl_op_definition
class ReplicaIdOp(IRDLOperation):
    """The number of this process among replicas, a `ui32` scalar."""

    name = "stablehlo.replica_id"

    result = result_def(_PROCESS_NUMBER)


@irdl_op_definition
class PartitionIdOp(IRDLOperation):
    """The number of this process among partitions, a `ui32` scalar."""

    name = "stablehlo.partition_id"

    result = result_def(_PROCESS_NUMBER)
