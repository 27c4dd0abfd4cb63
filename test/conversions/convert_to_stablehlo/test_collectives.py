"""Functional collectives on four devices of XLA CPU, with replica groups of neighbours and of every second process."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.frontends.distributed.module_groups import attach_replica_groups

WORLD = 4
TILES = {
    "neighbours": [[0, 1], [2, 3]],
    "strided": [[0, 2], [1, 3]],
    "world": [[0, 1, 2, 3]],
    "turned": [[1, 0], [3, 2]],
}

functional = torch.ops._c10d_functional


def wait(value: torch.Tensor) -> torch.Tensor:
    return functional.wait_tensor(value)


def converted(program: Callable[..., object], *inputs: torch.Tensor, tiles: dict = TILES) -> ModuleOp:
    module = ir.import_callable(program, *inputs)
    attach_replica_groups(module, tiles)
    ir.run_passes(module, "alias-outputs,functionalize,convert-to-stablehlo")
    module.verify()
    return module


@functools.cache
def devices() -> tuple[Any, list[Any]]:
    from jaxlib import xla_client

    client = xla_client.make_cpu_client(num_devices=WORLD)
    return client, client.devices()


def on_devices(text: str, inputs: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The results of each device, which gets its own input."""
    from jaxlib import _hlo, _jax, xla_client

    client, found = devices()
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = WORLD, 1
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = WORLD, 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(WORLD).reshape(WORLD, 1))
    program = client.compile_and_load(text, found, options)

    class Whole:
        """All inputs beside each other, as if they were pieces of one array."""

        weak_type = False
        dtype, ndim = inputs[0].dtype, inputs[0].ndim
        shape = (WORLD * inputs[0].shape[0], *inputs[0].shape[1:])

        def str_short(self, *_args: object, **_keywords: object) -> str:
            return "whole"

    sharding = _jax.GSPMDSharding(tuple(found), _hlo.HloSharding.iota_tile((WORLD,) + (1,) * (Whole.ndim - 1)))
    semantics = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    buffer = _jax.batched_device_put(Whole(), sharding, inputs, found, True, True, semantics, True)
    results = program.execute_sharded([buffer]).disassemble_into_single_device_arrays()
    return [[np.asarray(result[rank]) for result in results] for rank in range(WORLD)]


def run(program: Callable[..., object], inputs: list[np.ndarray], xla) -> list[list[np.ndarray]]:
    return on_devices(xla.verified(str(converted(program, torch.from_numpy(inputs[0])))), inputs)


def members(tiles: list[list[int]], rank: int) -> list[int]:
    return next(tile for tile in tiles if rank in tile)


@pytest.mark.parametrize("name", ["neighbours", "strided", "world", "turned"])
def test_exchanges(name: str, xla) -> None:
    """What each process gets from its group, whose order counts."""
    tiles, size = TILES[name], len(TILES[name][0])
    inputs = [np.arange(12, dtype=np.float32).reshape(4, 3) + 100 * rank for rank in range(WORLD)]

    def program(x: torch.Tensor) -> object:
        return (
            *(wait(functional.all_reduce(x, how, name)) for how in ("sum", "avg", "max", "min", "product")),
            wait(functional.all_gather_into_tensor(x, size, name)),
            wait(functional.reduce_scatter_tensor(x, "sum", size, name)),
            wait(functional.reduce_scatter_tensor(x, "avg", size, name)),
            wait(functional.all_to_all_single(x, [4 // size] * size, [4 // size] * size, name)),
            wait(functional.broadcast(x, 1, name)),
            *map(wait, functional.all_reduce_coalesced([x, x + 1], "sum", name)),
        )

    for rank, results in enumerate(run(program, inputs, xla)):
        tile = members(tiles, rank)
        theirs, place, part = [inputs[member] for member in tile], tile.index(rank), 4 // size
        own = slice(place * part, (place + 1) * part)
        total = sum(theirs)
        expected = [
            *(total, total / size, np.max(theirs, 0), np.min(theirs, 0), np.prod(theirs, 0)),
            *(np.concatenate(theirs), total[own], total[own] / size),
            *(np.concatenate([value[own] for value in theirs]), theirs[1], total, total + size),
        ]
        for number, (result, value) in enumerate(zip(results, expected, strict=True)):
            np.testing.assert_allclose(result, value, rtol=2**-22, err_msg=f"result {number} of process {rank}")


def test_bits(xla) -> None:
    """Reductions of bits, which XLA CPU does not run: valid, and what they say."""

    def program(x: torch.Tensor) -> object:
        return [wait(functional.all_reduce(x, how, "strided")) for how in ("band", "bor", "bxor")]

    text = xla.verified(str(converted(program, torch.zeros(2, dtype=torch.int32))))
    assert [text.count(f"stablehlo.{operation} ") for operation in ("and", "or", "xor")] == [1, 1, 1]


def test_groups_are_those_of_the_module() -> None:
    text = str(converted(lambda x: wait(functional.all_reduce(x, "sum", "strided")), torch.zeros(4)))
    assert "replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>" in text
    assert "wait" not in text


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: functional.all_reduce(x, "sum", "unknown"), r"group 'unknown' has no replica groups"),
        (lambda x: functional.all_reduce(x, "premul_sum", "world"), r"reduction 'premul_sum' has no StableHLO form"),
        (lambda x: functional.all_reduce(x.int(), "avg", "world"), r"average of elements of type i32"),
        (lambda x: functional.all_gather_into_tensor(x, 3, "strided"), r"the group has 3 processes, .*\[\[0, 2\]"),
        (lambda x: functional.all_to_all_single(x, [1, 3], [3, 1], "strided"), r"\[1, 3\].*pieces of equal"),
    ],
)
def test_refused(program: Callable[..., object], reason: str) -> None:
    with pytest.raises(PassFailedException, match=rf"test_collectives\.py:\d+.*{reason}"):
        converted(lambda x: wait(program(x)), torch.zeros(4))
