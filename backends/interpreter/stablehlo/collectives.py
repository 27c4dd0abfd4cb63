"""Collectives of simulated processes, and how processes run together.

Each process runs until it has to exchange something, and goes on when all of its group have come to the same operation.
A reduction combines the values of a group in its order, as `reduce` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import Operation, Region
from xdsl.utils.exceptions import InterpretationError

from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Exchange, Frame, Given, Stepper, Steps, failure
from vllm_ir.backends.interpreter.stablehlo.reductions import folded
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.dialects import stablehlo as hlo
from vllm_ir.dialects.stablehlo.collectives import group_rows


def run_together(processes: Sequence[Steps]) -> list[Sequence[Array]]:
    """What each of the processes gives.

    Raises:
        InterpretationError: some wait for others that never come.
    """
    waiting: dict[int, Exchange] = {}
    results: dict[int, Sequence[Array]] = {}

    def advance(process: int, given: Given | None) -> None:
        try:
            waiting[process] = processes[process].send(given)
        except StopIteration as end:
            results[process] = end.value

    for process in range(len(processes)):
        advance(process, None)
    while waiting:
        group = next((entry.group for entry in waiting.values() if _complete(entry, waiting)), None)
        if group is None:
            raise _stuck(waiting)
        given = [waiting[member].values for member in group]
        for member in group:
            del waiting[member]
        for member in group:
            advance(member, given)
    return [results[process] for process in range(len(processes))]


def _complete(entry: Exchange, waiting: Mapping[int, Exchange]) -> bool:
    return all(member in waiting and waiting[member].op is entry.op for member in entry.group)


def _stuck(waiting: Mapping[int, Exchange]) -> InterpretationError:
    process, entry = min(waiting.items())
    missing = [member for member in entry.group if not (member in waiting and waiting[member].op is entry.op)]
    return failure(
        entry.op,
        f"process {process} waits for {', '.join(map(str, missing))} of its group {list(entry.group)}, "
        "which do not come to this operation; give the inputs of all processes, which must take the same branches",
    )


def _group(frame: Frame, groups: DenseIntOrFPElementsAttr) -> tuple[int, ...]:
    """The processes of the group that this one is in; no groups at all means that all are in one."""
    rows = [tuple(member for member in row if member >= 0) for row in group_rows(groups)]
    if not rows:
        return tuple(range(frame.program.processes))
    found = next((row for row in rows if frame.process in row), None)
    if found is None:
        raise ValueError(f"process {frame.process} is in no group of {list(map(list, rows))}")
    return found


def _reduced(frame: Frame, body: Region, values: Sequence[Array]) -> Array:
    (result,) = folded(frame, body, [np.stack(values, -1)])
    return result


def _exchanged(op: Operation, group: tuple[int, ...], values: Sequence[Array]) -> Steps:
    """The values of all of a group, flattened: all of its first process, then of its second."""
    given = yield Exchange(op, group, values)
    return [value for theirs in given or () for value in theirs]


def _all_reduce(frame: Frame, op: hlo.AllReduceOp, values: Sequence[Array]) -> Steps:
    everything = yield from _exchanged(op, _group(frame, op.replica_groups), values)
    count = len(values)
    return [_reduced(frame, op.computation, everything[index::count]) for index in range(count)]


def _all_gather(frame: Frame, op: hlo.AllGatherOp, values: Sequence[Array]) -> Steps:
    everything = yield from _exchanged(op, _group(frame, op.replica_groups), values)
    count = len(values)
    return [np.concatenate(everything[index::count], op.all_gather_dim.value.data) for index in range(count)]


def _reduce_scatter(frame: Frame, op: hlo.ReduceScatterOp, values: Sequence[Array]) -> Steps:
    group = _group(frame, op.replica_groups)
    everything = yield from _exchanged(op, group, values)
    total = _reduced(frame, op.computation, everything)
    return [np.split(total, len(group), op.scatter_dimension.value.data)[group.index(frame.process)]]


def _all_to_all(frame: Frame, op: hlo.AllToAllOp, values: Sequence[Array]) -> Steps:
    group = _group(frame, op.replica_groups)
    everything = yield from _exchanged(op, group, values)
    place, count = group.index(frame.process), len(values)
    results: list[Array] = []
    for index in range(count):
        parts = [np.split(value, op.split_count.value.data, op.split_dimension.value.data) for value in everything]
        received = [part[place] for part in parts[index::count]]
        results.append(np.concatenate(received, op.concat_dimension.value.data))
    return results


def _collective_permute(frame: Frame, op: hlo.CollectivePermuteOp, values: Sequence[Array]) -> Steps:
    everything = yield from _exchanged(op, tuple(range(frame.program.processes)), values)
    flat = cast("Sequence[int]", op.source_target_pairs.get_values())
    sources = [source for source, target in zip(flat[::2], flat[1::2], strict=True) if target == frame.process]
    return [everything[sources[0]] if sources else np.zeros_like(values[0])]


def _collective_broadcast(frame: Frame, op: hlo.CollectiveBroadcastOp, values: Sequence[Array]) -> Steps:
    if not any(frame.process in row for row in group_rows(op.replica_groups)):
        return [np.zeros_like(values[0])]
    everything = yield from _exchanged(op, _group(frame, op.replica_groups), values)
    return [everything[0]]


def _replica_id(frame: Frame, _op: hlo.ReplicaIdOp, _values: Sequence[Array]) -> Array:
    return np.array(0 if frame.program.partitioned else frame.process, np.uint32)


def _partition_id(frame: Frame, _op: hlo.PartitionIdOp, _values: Sequence[Array]) -> Array:
    return np.array(frame.process if frame.program.partitioned else 0, np.uint32)


COLLECTIVES: Mapping[type[Operation], Stepper] = {
    hlo.AllGatherOp: _all_gather,
    hlo.AllReduceOp: _all_reduce,
    hlo.AllToAllOp: _all_to_all,
    hlo.CollectiveBroadcastOp: _collective_broadcast,
    hlo.CollectivePermuteOp: _collective_permute,
    hlo.ReduceScatterOp: _reduce_scatter,
}
"""How each operation runs."""

PROCESS_NUMBERS: Mapping[type[Operation], Evaluator] = {
    hlo.PartitionIdOp: _partition_id,
    hlo.ReplicaIdOp: _replica_id,
}
"""What each operation gives."""
