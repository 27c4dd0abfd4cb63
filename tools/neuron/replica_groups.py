"""`replica-groups`: which ranks take part in each collective, on the nodes."""

from __future__ import annotations

from datetime import timedelta

from torch import fx
from torch._C._distributed_c10d import ProcessGroup

from vllm_ir.frontends.distributed.module_groups import add_groups
from vllm_ir.frontends.distributed.replica_groups import TIMEOUT, Tiles, collectives_in, resolve
from vllm_ir.tools.neuron.graphs import Result, copied, graphs_in


def resolve_replica_groups(
    gm: fx.GraphModule, process_group: ProcessGroup | None = None, timeout: timedelta = TIMEOUT
) -> Result:
    """A copy of `gm` whose collectives have `meta["replica_groups"]`: the complete partition of the world.

    Its parts are of equal size and sorted by first rank; the order inside a part is that of the group. A rank knows
    only its own groups, so all ranks of the world run this pass on the same program and tell each other theirs, through
    the store of `init_process_group`. Where every group is the world, or there is no collective, ranks do not wait.

    Args:
        gm: a graph with collectives of `torch.ops._c10d_functional`, as overloads or packets.
        process_group: a group that may be named without being registered under its name.
        timeout: how long to wait for the other ranks.

    Metadata: `resolved_count`; `replica_groups`: for each collective, by the node's name; `groups`: by group name.

    Raises:
        ReplicaGroupError: a group cannot be resolved; operator, file and line and group are named.
    """
    gm = copied(gm)
    found = [pair for module in graphs_in(gm) for pair in collectives_in(module.graph)]
    tiles = resolve([collective for _, collective in found], process_group, timeout)
    groups: dict[str, Tiles] = {}
    by_node: dict[str, Tiles] = {}
    for (node, collective), partition in zip(found, tiles, strict=True):
        add_groups(groups, collective, partition)
        node.meta["replica_groups"] = by_node[node.name] = partition
    return gm, {"resolved_count": len(found), "replica_groups": by_node, "groups": groups}
