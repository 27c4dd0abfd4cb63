"""Replica groups of collectives: the complete partition of the world, learnt from the ranks themselves.

A rank knows the groups that it is in, and a name such as `"7"` means another group on another rank. What a compiler has
to be told is what all ranks do at a collective: a partition of the world into groups. It cannot be computed from the
group's size, because neither `[[0, 1], [2, 3]]` nor `[[0, 2], [1, 3]]` can be told from the other by it, and the other
groups of a mesh are not registered here. So every rank says which ranks it has at each collective of the program, in
order, and reads what the others say. That relies on one thing only, which collectives rely on as well: that all ranks
compile the same program. It is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, cast

from torch import fx
from torch._C._distributed_c10d import ProcessGroup
from torch._ops import OpOverloadPacket

from vllm_ir.frontends.distributed.group_names import group_position
from vllm_ir.frontends.distributed.torch_internals import (
    Meeting,
    group_named,
    is_initialized,
    missing,
    name_of,
    own_rank,
    ranks_of,
    world_size,
)
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload, overloads_of

Tiles: TypeAlias = list[list[int]]
"""A partition of the world's ranks into groups of equal size, sorted by first rank; order inside a group counts."""

TIMEOUT = timedelta(minutes=10)
"""How long ranks wait for one another: one may still compile what the others have in a cache."""


class ReplicaGroupError(ValueError):
    """The ranks of a collective cannot be found out; the message names the operator, the user's line and the group."""


@dataclass(frozen=True)
class Collective:
    """A call of a collective: the operator, the group that it names, and the user's `file:line` if that is known."""

    target: str
    group: object
    place: str = ""

    @property
    def name(self) -> str:
        """What the program calls the group."""
        return name_of(self.group) if isinstance(self.group, ProcessGroup) else str(self.group)

    def error(self, reason: str) -> ReplicaGroupError:
        """An error about this call."""
        where = f"{self.place}: " if self.place else ""
        return ReplicaGroupError(f"{where}@{self.target}: group {self.name!r} {reason}")


def collectives_in(graph: fx.Graph) -> Iterator[tuple[fx.Node, Collective]]:
    """The collectives that nodes of a graph call, as overloads or as packets."""
    for node in graph.nodes:
        overload = _overload(node.target) if node.op == "call_function" else None
        position = None if overload is None else group_position(overload)
        if overload is None or position is None:
            continue
        group = node.args[position] if position < len(node.args) else node.kwargs.get("group_name")
        place = user_location(node)
        yield node, Collective(str(overload), group, "" if place is None else f"{place[0]}:{place[1]}")


def _overload(target: object) -> Overload | None:
    if isinstance(target, OpOverloadPacket):
        overloads = overloads_of(cast("OpOverloadPacket[..., object]", target))
        return overloads[0] if overloads else None
    return target if is_overload(target) else None


def resolve(
    collectives: Sequence[Collective], process_group: ProcessGroup | None = None, timeout: timedelta = TIMEOUT
) -> list[Tiles]:
    """The replica groups of each collective.

    All ranks of the world call this, with the collectives of the same program in the same order, unless every group is
    the world. `process_group` is a group that may be named without being registered under its name.

    Raises:
        ReplicaGroupError: a group is not known, a rank does not come or has another program, or the groups of all ranks
            are no partition into equal parts.
    """
    own = [_own_ranks(collective, process_group) for collective in collectives]
    if not own:
        return []
    world = list(range(world_size()))
    if all(ranks == world for ranks in own):
        return [[world] for _ in own]
    said = _exchanged(collectives, own, timeout)
    return [
        _partition(collective, {rank: groups[number] for rank, groups in enumerate(said)})
        for number, collective in enumerate(collectives)
    ]


def _own_ranks(collective: Collective, process_group: ProcessGroup | None) -> list[int]:
    if not is_initialized():
        raise collective.error("cannot be resolved: torch.distributed is not initialised in this process")
    group = collective.group
    if isinstance(group, str):
        given = process_group is not None and name_of(process_group) == group
        group = process_group if given else group_named(group)
    ranks = ranks_of(group) if isinstance(group, ProcessGroup) else None
    if ranks is None:
        raise collective.error("is not registered with torch.distributed on this rank; make it with new_group")
    if own_rank() not in ranks:
        raise collective.error(f"has ranks {ranks}, and this is rank {own_rank()}, which is not one of them")
    return ranks


def _exchanged(
    collectives: Sequence[Collective], own: Sequence[list[int]], timeout: timedelta
) -> list[list[list[int]]]:
    """The ranks that each rank has at each collective."""
    targets = [collective.target for collective in collectives]
    found = Meeting("replica_groups").exchange(json.dumps({"targets": targets, "ranks": own}), timeout)
    if absent := missing(found):
        raise collectives[0].error(
            f"cannot be resolved: rank{'s' * (len(absent) > 1)} {', '.join(map(str, absent))} did not say within "
            f"{timeout.total_seconds():.0f} s which ranks they have; all ranks must compile the program"
        )
    said: list[list[list[int]]] = []
    for rank, text in enumerate(found):
        theirs = cast("dict[str, list[object]]", json.loads(text or "{}"))
        if theirs["targets"] != targets:
            number = next(
                (n for n, pair in enumerate(zip(theirs["targets"], targets, strict=False)) if pair[0] != pair[1]),
                min(len(targets), len(theirs["targets"])),
            )
            other = theirs["targets"][number] if number < len(theirs["targets"]) else "none"
            raise collectives[min(number, len(targets) - 1)].error(
                f"cannot be resolved: rank {rank} compiles another program, its collective {number} is {other}"
            )
        said.append(cast("list[list[int]]", theirs["ranks"]))
    return said


def _partition(collective: Collective, groups: Mapping[int, list[int]]) -> Tiles:
    """The groups of all ranks as one partition."""
    for rank, group in groups.items():
        for member in group:
            if groups.get(member) != group:
                raise collective.error(
                    f"is no partition of the world: rank {rank} has ranks {group}, rank {member} has "
                    f"{groups.get(member)}"
                )
    tiles = [list(tile) for tile in sorted({tuple(group) for group in groups.values()})]
    sizes = sorted({len(tile) for tile in tiles})
    if len(sizes) > 1:
        raise collective.error(f"is not of the same size on all ranks: {tiles}; replica groups are of equal size")
    return tiles
