"""Programs that write caches through views: no copy of the cache or of a layer in what XLA runs, and eager's values."""

import re
from math import prod

import pytest
import torch
from torch import Tensor

import vllm_ir as ir

LAYERS, BLOCKS, BLOCK, HEADS, DIM = 4, 16, 4, 2, 8
ROWS = BLOCKS * BLOCK
LAYER = ROWS * HEADS * DIM


def large_values(program: "ir.StableHLOProgram", least: int) -> list[str]:
    """Operations of the optimised module, inside of fusions too, that make a value of at least this many elements.

    Left out are those that give memory another name or write a part of it in place.
    """
    in_place = {"parameter", "bitcast", "dynamic-update-slice", "scatter", "get-tuple-element", "tuple", "while"}
    found = re.findall(r"= \w+\[([\d,]+)\]\S* ([\w-]+)\(", program.optimized_hlo())
    return [
        f"{op}[{sizes}]"
        for sizes, op in found
        if prod(map(int, sizes.split(","))) >= least and op not in in_place | {"fusion", "call"}
    ]


def run(program, cache: Tensor, *inputs: Tensor) -> "ir.StableHLOProgram":
    """The exported program, after a comparison with eager."""
    exported = ir.export_stablehlo(ir.import_callable(program, cache, *inputs))
    expected, actual = cache.clone(), cache.clone()
    pointer = actual.data_ptr()
    results = exported.run(actual, *inputs)
    wanted = program(expected, *inputs)
    for result, value in zip(results, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(result, value, rtol=0, atol=0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert actual.data_ptr() == pointer
    return exported


def nested_selects(cache, k, v, slots):
    for layer in range(LAYERS):
        cache[layer, 0, 3, layer] = k[0]
        cache[layer][1][2:4, 1] = v[:2]
        k = k + cache[layer, 0, 3]
    return k


def unbound(cache, k, v, slots):
    total = k
    for layer in cache.flatten(2, 3).unbind(0):
        keys, values = layer.unbind(0)
        keys[slots] = k
        values[slots] = v
        k = k + keys[slots]
        total = total + values[slots]
    return k, total


def paged(cache, k, v, slots):
    total = v
    for layer in range(LAYERS):
        cache[layer, 0].view(-1, HEADS, DIM)[slots] = k
        cache[layer, 1].view(-1, HEADS, DIM).index_copy_(0, slots, v)
        k = k + cache[layer, 0].view(-1, HEADS, DIM)[slots]
        total = total + cache[layer, 1].view(-1, HEADS, DIM)[slots]
    return k, total


def accumulated(cache, k, v, slots):
    for layer in range(LAYERS):
        cache[layer, 0].view(-1, HEADS, DIM).index_put_((slots // 2 * 2,), k, accumulate=True)
    return (k * 2,)


def one_row(cache, k, v, slots):
    slot, total = slots[:1], v
    for layer in range(LAYERS):
        cache[layer, 0].view(-1, HEADS, DIM).index_copy_(0, slot, k[:1])
        cache[layer, 1].view(-1, HEADS, DIM)[slot + 1] = v[:1]
        total = total + cache[layer, 1, 0, 0]
        k = k * 2
    return total


def transposed(cache, k, v, slots):
    heads_first = cache.flatten(2, 3).transpose(2, 3)
    for layer in range(LAYERS):
        heads_first[layer, 0, :, slots] = k.transpose(0, 1)
        heads_first[layer, 1, :, 4:8].copy_(v.transpose(0, 1))
    return heads_first[1, 0, 0, :3] + heads_first[2, 1, 1, 4:7]


def four_views(cache, k, v, slots):
    cache[0, 0].view(-1, HEADS, DIM)[slots] = k
    cache[1].select(0, 1)[:1] = v.view(1, BLOCK, HEADS, DIM)
    cache.transpose(0, 1)[1, 2].flatten(0, 1).narrow(0, 4, 4).copy_(v + 1)
    cache.unbind(0)[3][0].permute(1, 2, 3, 0)[0, :, :, 5].mul_(2)
    return cache[0, 0, 0] + 1


def old_rows(cache, k, v, slots):
    """Reads of rows before and behind a write to them, and of a layer that is written later."""
    old = cache[0, 0, 0] * 2
    other = cache[2, 0, :2] * 3
    cache[0, 0, 0] = k
    cache[2, 0, 1:3] = v
    return old, other, cache[0, 0, 0] + 1


@pytest.mark.parametrize(
    "program",
    [nested_selects, unbound, paged, accumulated, one_row, transposed, four_views, old_rows],
    ids=lambda program: program.__name__,
)
def test_a_cache_is_updated_without_copies(program):
    torch.manual_seed(0)
    cache = torch.randn(LAYERS, 2, BLOCKS, BLOCK, HEADS, DIM)
    k, v = torch.randn(4, HEADS, DIM), torch.randn(4, HEADS, DIM)
    exported = run(program, cache, k, v, torch.tensor([3, 9, 30, 17]))
    assert large_values(exported, LAYER) == []
    assert len(exported.io_map) == 1


def test_windows_that_overlap_are_written_in_order():
    def program(cache, k):
        one, two = cache[1], cache[0:2]
        old = one[0, 0].clone()
        two[1, 0, 0] = k
        one[0] = one[0] * 2
        two[:, :, 1].add_(1)
        one.transpose(0, 1)[0, 0].add_(k)
        return old, one[0, 0] * 1

    run(program, torch.randn(3, 2, 4, 5), torch.randn(5))


def test_a_part_that_is_not_put_back_leaves_the_tensor_alone():
    def program(cache, k):
        part = cache[0].clone()
        part[1] = k
        cache[1, 0] = part[1] + cache[0, 1]
        return part

    exported = run(program, torch.randn(2, 3, 4), torch.randn(4))
    assert "tensor<2x3x4xf32>, tensor<1x1x4xf32>" in exported.text


def test_layers_of_a_result_are_written_as_one():
    def program(cache, k):
        made = cache * 2
        for layer in range(LAYERS):
            made[layer, 0, layer] = k
        return made.sum((0, 1))

    exported = ir.export_stablehlo(ir.import_callable(program, torch.randn(LAYERS, 2, 64, 4), torch.randn(4)))
    assert exported.text.count("dynamic_update_slice") == LAYERS
    assert len(re.findall(r"dynamic_update_slice.*-> tensor<4x2x64x4xf32>", exported.text)) == LAYERS
