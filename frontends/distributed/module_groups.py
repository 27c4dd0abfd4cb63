"""Replica groups in the IR: the module says for each group's name which ranks take part.

`builtin.module attributes {vllm_ir.replica_groups = {"1" = [array<i64: 0, 1>, array<i64: 2, 3>]}}`. It is an attribute
of the module, because passes replace calls, and because all collectives that name a group on one rank have the same
partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import cast

from torch._C._distributed_c10d import ProcessGroup
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FileLineColLoc,
    IntegerType,
    ModuleOp,
    NameLoc,
    i64,
)
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.distributed.group_names import group_of, group_position
from vllm_ir.frontends.distributed.replica_groups import (
    TIMEOUT,
    Collective,
    ReplicaGroupError,
    Tiles,
    resolve,
)
from vllm_ir.frontends.fx.schemas import resolve as resolve_target
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.values import decode

REPLICA_GROUPS = "vllm_ir.replica_groups"


def attach_replica_groups(module: ModuleOp, groups: Mapping[str, Tiles]) -> None:
    """Say in a module which ranks take part where a collective names a group."""
    entries: dict[str, Attribute] = {
        name: ArrayAttr([DenseArrayBase.from_list(i64, tile) for tile in tiles]) for name, tiles in groups.items()
    }
    if entries:
        module.attributes[REPLICA_GROUPS] = DictionaryAttr(entries)


def attached_replica_groups(module: ModuleOp) -> dict[str, Tiles]:
    """What a module says about groups, by name.

    Raises:
        VerifyException: it does not say it in the form above, or says no partition into groups of equal size.
    """
    given = module.attributes.get(REPLICA_GROUPS, DictionaryAttr({}))
    if not isinstance(given, DictionaryAttr):
        raise VerifyException(f"{REPLICA_GROUPS} is {given}, it takes a dictionary")
    return {name: _tiles(name, entry) for name, entry in given.data.items()}


def _tiles(name: str, entry: Attribute) -> Tiles:
    lines = cast(ArrayAttr[Attribute], entry).data if isinstance(entry, ArrayAttr) else ()
    tiles = [_numbers(line) for line in lines]
    ranks = sorted(rank for tile in tiles for rank in tile)
    if not tiles or ranks != list(range(len(ranks))) or len({*map(len, tiles)}) != 1:
        raise VerifyException(
            f"{REPLICA_GROUPS} of group {name!r} is {entry}; it takes lists of ranks of equal length that hold each "
            "rank of the world once"
        )
    return tiles


def _numbers(line: Attribute) -> list[int]:
    if not isinstance(line, DenseArrayBase):
        return []
    return list(cast(DenseArrayBase[IntegerType], line).get_values())


def resolve_module(module: ModuleOp, process_group: ProcessGroup | None = None, timeout: timedelta = TIMEOUT) -> None:
    """Find out the groups that the module's collectives name, and say them in the module.

    Groups that the module says something about are left as they are. Every rank of the world calls this with its module
    of the same program; arguments and errors are those of `resolve`.
    """
    known = attached_replica_groups(module)
    pending = [collective for collective in collectives_of(module) if collective.group not in known]
    for collective, tiles in zip(pending, resolve(pending, process_group, timeout), strict=True):
        add_groups(known, collective, tiles)
    attach_replica_groups(module, known)


def add_groups(groups: dict[str, Tiles], collective: Collective, tiles: Tiles) -> None:
    """Add what a collective's group is; `ReplicaGroupError` if another collective has it as another partition."""
    name = collective.name
    if groups.setdefault(name, tiles) != tiles:
        raise collective.error(f"is {tiles} here and {groups[name]} elsewhere in the program")


def collectives_of(module: ModuleOp) -> Iterator[Collective]:
    """The collectives of a module, torch's and ops, in order."""
    for op in module.walk():
        group = group_of(op)
        if group is not None:
            yield Collective(op.target if isinstance(op, CallOp) else op.name, group, _place(op))


def replica_groups_of(op: CallOp, program: Operation | None = None) -> Tiles:
    """The replica groups of a call of a collective, as the module says them that it or `program` is in.

    For conversions, which ask no process for anything. A call in the definition of an operation is in no module that
    says anything; `program` is that operation, or what it is in.

    Raises:
        ReplicaGroupError: the module says nothing about the group.
    """
    root = program or op
    while (parent := root.parent_op()) is not None:
        root = parent
    target = resolve_target(op.target)
    position = group_position(target) if is_overload(target) else None
    if position is None:
        raise ValueError(f"@{op.target} is no functional collective")
    collective = Collective(op.target, decode(op.arguments()[position], op.operands, str), _place(op))
    known = attached_replica_groups(root) if isinstance(root, ModuleOp) else {}
    if collective.name not in known:
        raise collective.error(
            f"has no replica groups in {REPLICA_GROUPS}; resolve them on all ranks: ir.neuron.attach_replica_groups"
        )
    return known[collective.name]


def _place(op: Operation) -> str:
    location = op.location
    location = location.location if isinstance(location, NameLoc) else location
    return f"{location.filename.data}:{location.line.data}" if isinstance(location, FileLineColLoc) else ""


__all__ = [
    "REPLICA_GROUPS",
    "ReplicaGroupError",
    "add_groups",
    "attach_replica_groups",
    "attached_replica_groups",
    "collectives_of",
    "replica_groups_of",
    "resolve_module",
]
