"""Replica groups of collectives on four real ranks, and what cannot be resolved."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor, fx
from torch.distributed import ProcessGroup
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

import vllm_ir as ir
from vllm_ir.frontends.distributed.module_groups import attached_replica_groups, replica_groups_of
from vllm_ir.frontends.distributed.replica_groups import Collective, ReplicaGroupError, _partition

ROWS = [[0, 1], [2, 3]]
COLUMNS = [[0, 2], [1, 3]]
WORLD = [[0, 1, 2, 3]]


def _program(row: ProcessGroup, column: ProcessGroup) -> Callable[..., object]:
    def program(x: Tensor, kv: Tensor) -> tuple[Tensor, ...]:
        summed = collectives.all_reduce(x, "sum", row)
        kv.add_(1)
        gathered = collectives.all_gather_tensor(summed, 0, column)
        scattered = collectives.reduce_scatter_tensor(gathered, "sum", 0, dist.group.WORLD)
        dist.all_reduce(kv, group=column)
        swapped = collectives.all_to_all_single(x, None, None, row)
        return scattered, swapped, collectives.broadcast(x, 0, dist.group.WORLD)

    return program


def _captured(program: Callable[..., object], *inputs: object) -> fx.GraphModule:
    graphs: list[fx.GraphModule] = []
    torch.compile(program, backend=lambda gm, given: graphs.append(gm) or gm.forward, fullgraph=True)(*inputs)
    return graphs[0]


def _groups(lists: list[list[int]]) -> ProcessGroup:
    """The own one of several groups, which all ranks make."""
    made = [dist.new_group(ranks) for ranks in lists]
    return made[next(number for number, ranks in enumerate(lists) if dist.get_rank() in ranks)]


def _warm_up() -> None:
    torch.compile(lambda x: x + 1, backend="vllm_ir_eager", fullgraph=True)(torch.ones(2))
    assert ir.neuron
    if importlib.util.find_spec("jaxlib"):
        importlib.import_module("vllm_ir.backends.stablehlo.translate")
        importlib.import_module("vllm_ir.conversions.convert_to_stablehlo.convert_to_stablehlo")


def _on_rank(rank: int, folder: str) -> None:
    """What each of the four ranks does."""
    found: dict[str, object] = {}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    row, column = _groups(ROWS), _groups(COLUMNS)
    inputs = [torch.full((8, 4), float(rank)), torch.ones(2)]
    with torch.no_grad():
        program = _program(row, column)
        gm = _captured(program, *inputs)
        # Dynamo's graph calls packets; the names of groups are not those on other ranks.
        _, metadata = ir.neuron.resolve_replica_groups(gm)
        found["packets"] = _by_operator(_, metadata)
        found["names"] = sorted(metadata["groups"])
        functional, metadata = ir.neuron.run_fx_passes(gm, inputs, target_device="cpu", process_group=row)
        found["overloads"] = _by_operator(functional, metadata["replica-groups"])
        module = ir.import_fx(gm, inputs)
        ir.neuron.attach_replica_groups(module)
        module = ir.run_passes(ir.parse(str(module)), "alias-outputs,functionalize")
        calls = [op for op in module.walk() if op.name == "torch.call" and op.target.startswith("_c10d")]
        found["module"] = [(op.target, replica_groups_of(op)) for op in calls if "wait_tensor" not in op.target]
        text = ir.export_stablehlo(module).text if importlib.util.find_spec("jaxlib") else ""
        found["emitted"] = [
            line.partition("replica_groups = ")[2].partition(">")[0] for line in text.splitlines() if "replica_" in line
        ]
        found["errors"] = _errors(rank, row, column)
        # The functional graph does what the program does.
        expected, given = [x.clone() for x in inputs], [x.clone() for x in inputs]
        wanted, outputs = program(*expected), functional(*given)
        same = [torch.equal(a, b) for a, b in zip([*wanted, expected[1]], outputs, strict=True)]
        found["same"] = same
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _by_operator(gm: fx.GraphModule, metadata: dict[str, object]) -> list[object]:
    nodes = [node for node in gm.graph.nodes if "replica_groups" in node.meta]
    assert metadata["resolved_count"] == len(nodes)
    assert metadata["replica_groups"] == {node.name: node.meta["replica_groups"] for node in nodes}
    return [(str(node.target).removesuffix(".default"), node.meta["replica_groups"]) for node in nodes]


def _errors(rank: int, row: ProcessGroup, column: ProcessGroup) -> list[str]:
    """What ranks are told that do not agree."""
    said: list[str] = []
    uneven = _groups([[0, 1, 2], [3]])
    crossed = row if rank < 2 else column
    programs = [
        lambda x: collectives.all_reduce(x, "sum", uneven),
        lambda x: collectives.all_reduce(x, "sum", crossed),
        lambda x: collectives.all_reduce(x, "sum", row) if rank else collectives.all_gather_tensor(x, 0, row),
    ]
    for program in programs:
        graph = make_fx(program, tracing_mode="fake")(torch.ones(4))
        try:
            ir.neuron.resolve_replica_groups(graph, timeout=timedelta(seconds=60))
        except ReplicaGroupError as error:
            said.append(str(error))
    if rank:  # rank 0 stays away
        graph = make_fx(programs[2], tracing_mode="fake")(torch.ones(4))
        with pytest.raises(ReplicaGroupError) as error:
            ir.neuron.resolve_replica_groups(graph, timeout=timedelta(seconds=0.2))
        said.append(str(error.value))
    return said


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """What four ranks found, each in a process of its own."""
    folder = tmp_path_factory.mktemp("ranks")
    code = (
        "import importlib.util, sys; import torch.multiprocessing as mp\n"
        f"spec = importlib.util.spec_from_file_location('replica_ranks', {__file__!r})\n"
        "module = sys.modules['replica_ranks'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "module._warm_up()\n"  # once, and not on each rank
        f"mp.start_processes(module._on_rank, ({str(folder)!r},), 4, start_method='fork')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


def test_metadata_has_the_complete_partition(ranks: list[dict[str, object]]):
    wanted = [
        ["_c10d_functional.all_reduce", ROWS],
        ["_c10d_functional.all_gather_into_tensor", COLUMNS],
        ["_c10d_functional.reduce_scatter_tensor", WORLD],
        ["_c10d_functional.all_reduce", COLUMNS],
        ["_c10d_functional.all_to_all_single", ROWS],
        ["_c10d_functional.broadcast", WORLD],
    ]
    for found in ranks:
        assert found["packets"] == wanted
        assert sorted(map(str, found["overloads"])) == sorted(map(str, wanted))
        assert sorted(map(str, found["module"])) == sorted(str([f"{name}.default", tiles]) for name, tiles in wanted)
        assert found["same"] == [True] * 4
        # The order of collectives is that of the program; `broadcast` is a gather.
        emitted = ["dense<" + str(tiles) for _, tiles in wanted] if importlib.util.find_spec("jaxlib") else []
        assert found["emitted"] == emitted
    assert ranks[0]["names"] != ranks[3]["names"]  # so names alone tell no rank what the others have


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (0, r"is not of the same size on all ranks: \[\[0, 1, 2\], \[3\]\]"),
        (1, r"is no partition of the world: rank \d has ranks \[\d, \d\], rank \d has \[\d, \d\]"),
        (2, r"rank \d compiles another program, its collective 0 is _c10d_functional.all_\w+.default"),
    ],
)
def test_ranks_that_do_not_agree(ranks: list[dict[str, object]], number: int, reason: str):
    for found in ranks:
        assert isinstance(found["errors"], list)
        with pytest.raises(ReplicaGroupError, match=rf"@_c10d_functional.all_\w+.default: group '\w+' .*{reason}"):
            raise ReplicaGroupError(found["errors"][number])


def test_a_rank_that_does_not_come(ranks: list[dict[str, object]]):
    for found in ranks[1:]:
        assert isinstance(found["errors"], list)
        assert "rank 0 did not say within 0 s which ranks they have" in found["errors"][3]


# Without other ranks


def _reduced(group: object) -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops._c10d_functional.all_reduce.default, (x, "sum", group))
    node.meta["stack_trace"] = '  File "/home/user/model.py", line 12, in forward\n'
    graph.output(node)
    return fx.GraphModule(torch.nn.Module(), graph)


def test_no_world():
    with pytest.raises(
        ReplicaGroupError,
        match=r"^/home/user/model.py:12: @_c10d_functional.all_reduce.default: group '0' cannot be resolved: "
        "torch.distributed is not initialised in this process$",
    ):
        ir.neuron.resolve_replica_groups(_reduced("0"))


def test_one_rank_of_a_world_that_is_not_there():
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    try:
        _, metadata = ir.neuron.run_fx_passes(_reduced(dist.group.WORLD.group_name), passes="replica-groups")
        assert metadata["replica-groups"]["resolved_count"] == 1
        assert list(metadata["replica-groups"]["groups"].values()) == [WORLD]  # nobody else has to be asked
        for group, reason in (
            ("nope", "group 'nope' is not registered with torch.distributed on this rank"),
            (dist.new_group([0, 1]).group_name, "ranks 0, 2, 3 did not say within 0 s"),
        ):
            with pytest.raises(ReplicaGroupError, match=f"model.py:12: .*{reason}"):
                ir.neuron.resolve_replica_groups(_reduced(group), timeout=timedelta(seconds=0.1))
    finally:
        dist.destroy_process_group()


def test_the_order_inside_a_group_is_kept():
    collective = Collective("c", "g")
    groups = {0: [3, 0], 1: [1, 2], 2: [1, 2], 3: [3, 0]}
    assert _partition(collective, groups) == [[1, 2], [3, 0]]


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("3 : i64", "is 3 : i64, it takes a dictionary"),
        ('{"1" = 3 : i64}', "of group '1' is 3 : i64; it takes lists of ranks of equal length"),
        ('{"1" = [array<i64: 0, 1>, array<i64: 2>]}', "of equal length"),
        ('{"1" = [array<i64: 0, 1>, array<i64: 1, 2>]}', "that hold each rank of the world once"),
    ],
)
def test_malformed_groups_in_a_module(attribute: str, reason: str):
    module = ir.parse(f"builtin.module attributes {{vllm_ir.replica_groups = {attribute}}} {{}}")
    with pytest.raises(Exception, match=reason):
        attached_replica_groups(module)


def test_a_module_that_says_nothing_about_a_group():
    module = ir.parse(
        "vllm_ir.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        '  %y = torch.call @_c10d_functional.all_reduce.default(%x, "sum", "1") : (tensor<2xf32>) -> tensor<2xf32>\n'
        "  vllm_ir.return (%y) : tensor<2xf32>\n}"
    )
    (call,) = [op for op in module.walk() if op.name == "torch.call"]
    with pytest.raises(ReplicaGroupError, match=r"group '1' has no replica groups in vllm_ir.replica_groups; resolve"):
        replica_groups_of(call)
