"""The private and untyped parts of torch.distributed, behind typed functions."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# Private: the registry of group names and the store that ranks met at have no public form. Unknown: they lack types.

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, _resolve_process_group
from torch.distributed import distributed_c10d


def is_initialized() -> bool:
    """Whether this process is a rank of a world."""
    return dist.is_available() and dist.is_initialized()


def own_rank() -> int:
    """This process's rank in the world."""
    return dist.get_rank()


def world_size() -> int:
    """Number of ranks in the world."""
    return dist.get_world_size()


def group_named(name: str) -> ProcessGroup | None:
    """The group that collectives call `name`; None if none is registered under that name."""
    try:
        return cast(Callable[[str], ProcessGroup], _resolve_process_group)(name)
    except (RuntimeError, ValueError, KeyError, LookupError):
        return None


def name_of(group: ProcessGroup) -> str:
    """What collectives call a group."""
    return group.group_name


def cpu_backend(group: ProcessGroup) -> str | None:
    """The backend that a group uses for tensors on the CPU; None if it has none for them."""
    try:
        return group._get_backend(torch.device("cpu")).name()
    except RuntimeError:
        return None


def ranks_of(group: ProcessGroup) -> list[int] | None:
    """The world's ranks in a group, in the order of their ranks in the group; None for a group that is gone."""
    places = distributed_c10d._world.pg_group_ranks.get(group)
    return None if places is None else sorted(places, key=lambda rank: places[rank])


class Meeting:
    """A place in the store of the world where all ranks exchange texts, once in each round."""

    def __init__(self, topic: str) -> None:
        """`topic` keeps rounds about one thing apart from those about others."""
        self._store = PrefixStore(f"vllm_ir/{topic}", distributed_c10d._get_default_store())

    def exchange(self, text: str, timeout: timedelta) -> list[str | None]:
        """What every rank has brought to this round, by rank; None for ranks that did not come in time.

        Ranks that call this equally often are in the same round. Nothing but the store is used: no collective of the
        program is in the way, and a rank that does not come is noticed.
        """
        rank = own_rank()
        try:
            number = self._store.add(f"rounds/{rank}", 1)
        except RuntimeError:  # a store that stands for none, of a world that is one process
            return [text if other == rank else None for other in range(world_size())]
        self._store.set(f"{number}/{rank}", text)
        found: list[str | None] = []
        deadline = time.monotonic() + timeout.total_seconds()
        for other in range(world_size()):
            try:
                left = max(deadline - time.monotonic(), 0.01)  # a wait of no time is one without end
                self._store.wait([f"{number}/{other}"], timedelta(seconds=left))
                found.append(self._store.get(f"{number}/{other}").decode())
            except (RuntimeError, ValueError):
                found.append(None)
        if None not in found and number > 1:
            # All are in this round, so all have left the one before.
            self._store.delete_key(f"{number - 1}/{rank}")
        return found


def missing(found: Sequence[str | None]) -> list[int]:
    """Ranks that did not come to a meeting."""
    return [rank for rank, text in enumerate(found) if not text]
