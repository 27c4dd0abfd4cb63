"""Functional collectives. Which processes take part is in the module; no process group is asked here.

Replica groups are numbers of processes, one device each, in the order that they have in the group. A collective is done
when its result is there: waiting is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, is_float, shape
from vllm_ir.dialects import stablehlo
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.distributed.module_groups import ReplicaGroupError, replica_groups_of

_REDUCTIONS: Mapping[str, type[Operation]] = {
    "sum": stablehlo.AddOp,
    "avg": stablehlo.AddOp,
    "product": stablehlo.MultiplyOp,
    "min": stablehlo.MinimumOp,
    "max": stablehlo.MaximumOp,
    "band": stablehlo.AndOp,
    "bor": stablehlo.OrOp,
    "bxor": stablehlo.XorOp,
}


def _tiles(b: Builder) -> list[list[int]]:
    """The processes of each group of the collective that is being converted."""
    if not isinstance(b.source, CallOp):
        raise TypeError(f"{b.source} is no call of a collective")
    try:
        return replica_groups_of(b.source, b.program)
    except ReplicaGroupError as error:
        # The operator is named by who reports the rejection.
        raise Rejected(str(error).rpartition(f"@{b.source.target}: ")[2]) from error


def _groups(tiles: Sequence[Sequence[int]]) -> Attribute:
    kind = TensorType(i64, [len(tiles), len(tiles[0])])
    return DenseIntOrFPElementsAttr.from_list(kind, [rank for tile in tiles for rank in tile])


def _sized(tiles: Sequence[Sequence[int]], group_size: int) -> None:
    if len(tiles[0]) != group_size:
        raise Rejected(f"the program says that the group has {group_size} processes, the module {tiles}")


def _reduction(reduce_op: str) -> type[Operation]:
    if (operation := _REDUCTIONS.get(reduce_op.lower())) is None:
        raise Rejected(
            f"the reduction {reduce_op!r} has no StableHLO form; those that have one: {', '.join(_REDUCTIONS)}"
        )
    return operation


def _averaged(b: Builder, value: SSAValue, reduce_op: str, count: int) -> SSAValue:
    """The average for a sum, if that is what the reduction is."""
    if reduce_op.lower() != "avg":
        return value
    if not is_float(element(value)):
        raise Rejected(
            f"an average of elements of type {element(value)} is not defined; it takes floating-point numbers"
        )
    return b.binary(stablehlo.DivideOp, value, count)


def _all_reduce(b: Builder, value: SSAValue, reduce_op: str, *_: object) -> SSAValue:
    tiles = _tiles(b)
    body = b.reducer(_reduction(reduce_op), element(value))
    result = b.emit(stablehlo.AllReduceOp, (value,), value.type, {"replica_groups": _groups(tiles)}, [body])
    return _averaged(b, result, reduce_op, len(tiles[0]))


def _all_gather(b: Builder, value: SSAValue, group_size: int, *_: object, **_keywords: object) -> SSAValue:
    tiles = _tiles(b)
    _sized(tiles, group_size)
    return _gathered(b, value, tiles)


def _gathered(b: Builder, value: SSAValue, tiles: Sequence[Sequence[int]]) -> SSAValue:
    """The values of the processes of each group, one behind the other along the first dimension."""
    sizes = shape(value) or (1,)
    kind = b.tensor((sizes[0] * len(tiles[0]), *sizes[1:]), element(value))
    properties = {"all_gather_dim": b.integer(0), "replica_groups": _groups(tiles)}
    return b.emit(stablehlo.AllGatherOp, (b.reshape(value, sizes),), kind, properties)


def _reduce_scatter(b: Builder, value: SSAValue, reduce_op: str, group_size: int, *_: object) -> SSAValue:
    tiles = _tiles(b)
    _sized(tiles, group_size)
    sizes = shape(value)
    if sizes[0] % group_size:
        raise Rejected(f"dimension 0 has size {sizes[0]}, which {group_size} processes cannot share equally")
    kind = b.tensor((sizes[0] // group_size, *sizes[1:]), element(value))
    properties = {"scatter_dimension": b.integer(0), "replica_groups": _groups(tiles)}
    body = b.reducer(_reduction(reduce_op), element(value))
    result = b.emit(stablehlo.ReduceScatterOp, (value,), kind, properties, [body])
    return _averaged(b, result, reduce_op, group_size)


def _all_to_all(
    b: Builder, value: SSAValue, output_split_sizes: Sequence[object], input_split_sizes: Sequence[object], *_: object
) -> SSAValue:
    tiles = _tiles(b)
    count = len(tiles[0])
    for name, splits in (("output", output_split_sizes), ("input", input_split_sizes)):
        if splits and (any(isinstance(split, SSAValue) for split in splits) or len({*splits}) > 1):
            raise Rejected(f"{name}_split_sizes is {splits}; StableHLO exchanges pieces of equal, known size")
    if shape(value)[0] % count:
        raise Rejected(f"dimension 0 has size {shape(value)[0]}, which {count} processes cannot share equally")
    properties = {
        "split_dimension": b.integer(0),
        "concat_dimension": b.integer(0),
        "split_count": b.integer(count),
        "replica_groups": _groups(tiles),
    }
    return b.emit(stablehlo.AllToAllOp, (value,), value.type, properties)


def _broadcast(b: Builder, value: SSAValue, src: int, *_: object) -> SSAValue:
    """The value of the process at place `src` of the group.

    By a gather and a slice: not every device has `collective_broadcast`.
    """
    tiles = _tiles(b)
    if not 0 <= src < len(tiles[0]):
        raise Rejected(f"the source is process {src} of a group of {len(tiles[0])}")
    gathered = _gathered(b, value, tiles)
    sizes = shape(value) or (1,)
    starts, limits = [0] * len(sizes), list(sizes)
    starts[0], limits[0] = src * sizes[0], (src + 1) * sizes[0]
    return b.reshape(b.slice(gathered, starts, limits), shape(value))


def _each(convert: Callable[..., SSAValue]) -> Converter:
    """A collective on several tensors as that on each of them."""

    def convert_all(b: Builder, values: Sequence[SSAValue], *arguments: object) -> Sequence[SSAValue]:
        return [convert(b, value, *arguments) for value in values]

    return convert_all


def _wait(_b: Builder, value: SSAValue) -> SSAValue:
    return value


_NAME = "_c10d_functional"
CONVERSIONS: Mapping[str, Converter] = {
    f"{_NAME}.all_reduce.default": _all_reduce,
    f"{_NAME}.all_reduce_coalesced.default": _each(_all_reduce),
    f"{_NAME}.all_gather_into_tensor.default": _all_gather,
    f"{_NAME}.all_gather_into_tensor_coalesced.default": _each(_all_gather),
    f"{_NAME}.reduce_scatter_tensor.default": _reduce_scatter,
    f"{_NAME}.reduce_scatter_tensor_coalesced.default": _each(_reduce_scatter),
    f"{_NAME}.all_to_all_single.default": _all_to_all,
    f"{_NAME}.broadcast.default": _broadcast,
    f"{_NAME}.wait_tensor.default": _wait,
}
"""Converters of this family."""
