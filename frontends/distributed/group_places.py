"""What a module's process is in its groups: how many ranks each has, and which of them the program is for.

`builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 4 : i64, rank = 1 : i64}}}`. It is an attribute of the
module, so that passes ask no process group. `rank` may be missing: the program is for all ranks then. Where nothing is
said of a group, its replica groups say how many ranks it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from vllm_ir.frontends.distributed.group_names import group_of
from vllm_ir.frontends.distributed.module_groups import attached_replica_groups
from vllm_ir.frontends.distributed.torch_internals import group_named, is_initialized, own_rank, ranks_of

GROUP_PLACES = "vllm_ir.group_places"


@dataclass(frozen=True)
class Place:
    """A process's place in a group: the group's number of ranks, and the process's own among them, if it is known."""

    ranks: int
    rank: int | None = None


def group_places(module: ModuleOp) -> dict[str, Place]:
    """What a module says of groups, by name.

    Raises:
        VerifyException: it does not say it in the form above.
    """
    places = {name: Place(len(tiles[0])) for name, tiles in attached_replica_groups(module).items()}
    given = module.attributes.get(GROUP_PLACES, DictionaryAttr({}))
    if not isinstance(given, DictionaryAttr):
        raise VerifyException(f"{GROUP_PLACES} is {given}, it takes a dictionary")
    return {**places, **{name: _place(name, entry) for name, entry in given.data.items()}}


def set_group_places(module: ModuleOp, places: Mapping[str, Place]) -> None:
    """Say in a module what its process is in groups."""
    entries: dict[str, Attribute] = {}
    for name, place in places.items():
        numbers = {"ranks": place.ranks} | ({} if place.rank is None else {"rank": place.rank})
        entries[name] = DictionaryAttr({key: IntegerAttr(number, i64) for key, number in numbers.items()})
    if entries:
        module.attributes[GROUP_PLACES] = DictionaryAttr(entries)


def attach_group_places(module: ModuleOp) -> None:
    """Say in a module what this process is in the groups that its collectives name, as far as torch knows them.

    No other rank is asked. What the module says already is left as it is.
    """
    if not is_initialized():
        return
    known = group_places(module)
    for op in module.walk():
        name = group_of(op)
        if name is not None and (name not in known or known[name].rank is None):
            group = group_named(name)
            ranks = None if group is None else ranks_of(group)
            if ranks is not None and own_rank() in ranks:
                known[name] = Place(len(ranks), ranks.index(own_rank()))
    set_group_places(module, known)


def _place(name: str, entry: Attribute) -> Place:
    numbers = {
        key: cast(IntegerAttr, value).value.data
        for key, value in (entry.data.items() if isinstance(entry, DictionaryAttr) else ())
        if isinstance(value, IntegerAttr)
    }
    ranks, rank = numbers.pop("ranks", 0), numbers.pop("rank", None)
    if numbers or ranks < 1 or (rank is not None and not 0 <= rank < ranks):
        raise VerifyException(
            f"{GROUP_PLACES} of group {name!r} is {entry}; it takes the number of ranks, and the rank among them"
        )
    return Place(ranks, rank)


__all__ = ["GROUP_PLACES", "Place", "attach_group_places", "group_places", "set_group_places"]
