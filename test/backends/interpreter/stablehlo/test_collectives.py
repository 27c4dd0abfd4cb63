"""Collectives of simulated processes, against what they are defined to give.

That XLA gives the same for what the converter emits is shown by `test/conversions/convert_to_stablehlo`; its CPU client
has one device here.
"""

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from xdsl.utils.exceptions import InterpretationError

import vllm_ir as ir
from vllm_ir.backends.interpreter.stablehlo.evaluate import evaluate, evaluate_processes
from vllm_ir.backends.interpreter.stablehlo.interpret import interpret_processes
from vllm_ir.frontends.distributed.module_groups import attach_replica_groups
from vllm_ir.tools.text import parse

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


def converted(program: Callable[..., object], *inputs: torch.Tensor):
    module = ir.import_callable(program, *inputs)
    attach_replica_groups(module, TILES)
    return ir.run_passes(module, "alias-outputs,functionalize,convert-to-stablehlo")


@pytest.mark.parametrize("name", TILES)
def test_converted_programs(name: str) -> None:
    tiles, size = TILES[name], len(TILES[name][0])
    inputs = [torch.arange(12.0).reshape(4, 3) + 100 * rank for rank in range(WORLD)]

    def program(x: torch.Tensor) -> object:
        return (
            *(wait(functional.all_reduce(x, how, name)) for how in ("sum", "avg", "max", "min", "product")),
            wait(functional.all_gather_into_tensor(x, size, name)),
            wait(functional.reduce_scatter_tensor(x, "sum", size, name)),
            wait(functional.all_to_all_single(x, [4 // size] * size, [4 // size] * size, name)),
            wait(functional.broadcast(x, 1, name)),
            *map(wait, functional.all_reduce_coalesced([x, x + 1], "sum", name)),
        )

    found = interpret_processes(converted(program, inputs[0]), [[value] for value in inputs])
    for rank, results in enumerate(found):
        tile = next(tile for tile in tiles if rank in tile)
        theirs, place, part = [inputs[member] for member in tile], tile.index(rank), 4 // size
        own = slice(place * part, (place + 1) * part)
        total = sum(theirs)
        stacked = torch.stack(theirs)
        expected = [
            *(total, total / size, stacked.amax(0), stacked.amin(0), functools.reduce(torch.mul, theirs)),
            *(torch.cat(theirs), total[own], torch.cat([value[own] for value in theirs]), theirs[1]),
            *(total, total + size),
        ]
        for number, (result, value) in enumerate(zip(results, expected, strict=True)):
            # Exact, except for products of four numbers: three roundings each.
            torch.testing.assert_close(result, value, rtol=6 * 2.0**-24 if number == 4 else 0, atol=0, msg=str(number))


def test_bits() -> None:
    def program(x: torch.Tensor) -> object:
        return [wait(functional.all_reduce(x, how, "strided")) for how in ("band", "bor", "bxor")]

    inputs = [torch.tensor([3 * rank + 1, 7]) for rank in range(WORLD)]
    for rank, results in enumerate(interpret_processes(converted(program, inputs[0]), [[value] for value in inputs])):
        one, other = (inputs[member] for member in TILES["strided"][rank % 2])
        for result, value in zip(results, (one & other, one | other, one ^ other), strict=True):
            assert torch.equal(result, value)


K, G = "tensor<2x4xi32>", "replica_groups = dense<[[0, 2], [3, 1]]> : tensor<2x2xi64>"
LINES = {
    "all_to_all": (
        f'"stablehlo.all_to_all"(%a0) <{{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, '
        f"{G}}}> : ({K}) -> tensor<4x2xi32>",
        "tensor<4x2xi32>",
    ),
    "all_gather": (
        f'"stablehlo.all_gather"(%a0) <{{all_gather_dim = 1 : i64, {G}}}> : ({K}) -> tensor<2x8xi32>',
        "tensor<2x8xi32>",
    ),
    "permute": (
        '"stablehlo.collective_permute"(%a0) <{source_target_pairs = dense<[[0, 1], [1, 3], [3, 0]]> : '
        f"tensor<3x2xi64>}}> : ({K}) -> {K}",
        K,
    ),
    "broadcast": (
        '"stablehlo.collective_broadcast"(%a0) <{replica_groups = dense<[[2, 0]]> : tensor<1x2xi64>}> : '
        f"({K}) -> {K}",
        K,
    ),
    "replica": ('"stablehlo.replica_id"() : () -> tensor<ui32>', "tensor<ui32>"),
    "partition": ('"stablehlo.partition_id"() : () -> tensor<ui32>', "tensor<ui32>"),
    "scatter": (
        f'"stablehlo.reduce_scatter"(%a0) <{{scatter_dimension = 1 : i64, {G}}}> ({{\n  ^bb0(%x: tensor<i32>, '
        "%y: tensor<i32>):\n    %z = stablehlo.subtract %x, %y : tensor<i32>\n    stablehlo.return %z : tensor<i32>\n  "
        f"}}) : ({K}) -> tensor<2x2xi32>",
        "tensor<2x2xi32>",
    ),
}


def test_operations(both) -> None:
    """Groups whose order is not that of the numbers, dimensions that are not the first, processes in no group."""
    module = parse(both.all_of(LINES, [K]))
    inputs = [np.arange(8, dtype=np.int32).reshape(2, 4) + 100 * rank for rank in range(WORLD)]
    results = evaluate_processes(module, [[value] for value in inputs])
    groups = {0: [0, 2], 2: [0, 2], 3: [3, 1], 1: [3, 1]}
    for rank, values in enumerate(results):
        found = dict(zip(LINES, values, strict=True))
        first, second = (inputs[member] for member in groups[rank])
        place = groups[rank].index(rank)
        own = slice(2 * place, 2 * place + 2)
        np.testing.assert_array_equal(found["all_to_all"], np.concatenate([first[:, own], second[:, own]], 0))
        np.testing.assert_array_equal(found["all_gather"], np.concatenate([first, second], 1))
        source = {1: 0, 3: 1, 0: 3}.get(rank)
        np.testing.assert_array_equal(found["permute"], inputs[source] if source is not None else 0 * first)
        np.testing.assert_array_equal(found["broadcast"], inputs[2] if rank in (0, 2) else 0 * first)
        np.testing.assert_array_equal(found["scatter"], (first - second)[:, own])
        assert (int(found["replica"]), int(found["partition"])) == (rank, 0)


def test_partitions(both) -> None:
    lines = {name: LINES[name] for name in ("replica", "partition")}
    module = parse(f"module attributes {{mhlo.num_partitions = 2 : i32}} {{\n{both.all_of(lines, [])}}}")
    assert [[int(value) for value in values] for values in evaluate_processes(module, [[], []])] == [[0, 0], [0, 1]]


SUM = """%{name} = "stablehlo.all_reduce"({value}) <{{replica_groups = dense<{groups}> : tensor<{shape}xi64>}}> ({{
    ^bb0(%x: tensor<i32>, %y: tensor<i32>):
      %z = stablehlo.add %x, %y : tensor<i32>
      stablehlo.return %z : tensor<i32>
    }}) : (tensor<i32>) -> tensor<i32>"""


def test_processes_that_take_other_branches(both) -> None:
    """Groups need not wait for each other: one loops while the other is done."""
    body = f"""  %r = "stablehlo.while"(%a0) ({{
  ^bb0(%v: tensor<i32>):
    %limit = stablehlo.constant dense<50> : tensor<i32>
    %more = stablehlo.compare LT, %v, %limit : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }}, {{
  ^bb0(%v: tensor<i32>):
    {SUM.format(name="s", value="%v", groups="[[0, 1], [2, 3]]", shape="2x2")}
    "stablehlo.return"(%s) : (tensor<i32>) -> ()
  }}) : (tensor<i32>) -> tensor<i32>"""
    module = parse(both.function(["tensor<i32>"], ["tensor<i32>"], body, ["%r"]))
    inputs = [[np.array(value, np.int32)] for value in (1, 1, 30, 30)]
    assert [int(values[0]) for values in evaluate_processes(module, inputs)] == [64, 64, 60, 60]


def test_processes_that_never_come(both) -> None:
    text = SUM.format(name="r", value="%a0", groups="[[0, 1]]", shape="1x2")
    module = parse(both.function(["tensor<i32>"], ["tensor<i32>"], f"  {text}", ["%r"]))
    with pytest.raises(InterpretationError, match=r"all_reduce: process 0 waits for 1 of its group \[0, 1\]"):
        evaluate(module, [np.array(1, np.int32)])
    with pytest.raises(InterpretationError, match=r"all_reduce: process 2 is in no group of \[\[0, 1\]\]"):
        evaluate_processes(module, [[np.array(1, np.int32)]] * 3)


def test_processes_that_come_to_different_collectives(both) -> None:
    sums = [SUM.format(name="s", value="%a1", groups="[[0, 1]]", shape="1x2") for _ in range(2)]
    branches = ", ".join(f'{{\n    {text}\n    "stablehlo.return"(%s) : (tensor<i32>) -> ()\n  }}' for text in sums)
    body = f'  %r = "stablehlo.if"(%a0) ({branches}) : (tensor<i1>) -> tensor<i32>'
    module = parse(both.function(["tensor<i1>", "tensor<i32>"], ["tensor<i32>"], body, ["%r"]))
    one = np.array(1, np.int32)
    same, different = ([[np.array(pred), one] for pred in preds] for preds in ((True, True), (True, False)))
    assert [int(values[0]) for values in evaluate_processes(module, same)] == [2, 2]
    with pytest.raises(InterpretationError, match=r"process 0 waits for 1 .*must take the same branches"):
        evaluate_processes(module, different)


def test_groups_of_unequal_size_and_none_at_all(both) -> None:
    uneven = SUM.format(name="r", value="%a0", groups="[[0, 1], [2, -1]]", shape="2x2")
    everyone = SUM.format(name="s", value="%a0", groups="", shape="0x0")
    module = parse(both.function(["tensor<i32>"], ["tensor<i32>"] * 2, f"  {uneven}\n  {everyone}", ["%r", "%s"]))
    results = evaluate_processes(module, [[np.array(value, np.int32)] for value in (1, 2, 4)])
    assert [[int(value) for value in values] for values in results] == [[3, 7], [3, 7], [4, 7]]
