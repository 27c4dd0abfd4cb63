"""Writes through views become writes into the whole tensor, and change what eager mode changes."""

import math
import re

import pytest
import torch
from torch import Tensor

import vllm_ir as ir

SIZES = (3, 2, 8, 4)
SLOTS, PAIR = [5, -8, 2], [1, -1]


def select_index(cache: Tensor, rows: Tensor) -> None:
    cache[1, 0][SLOTS] = rows


def select_in_the_middle(cache: Tensor, rows: Tensor) -> None:
    cache[:, 1][PAIR, SLOTS[:2]] = rows[:2]


def select_behind(cache: Tensor, rows: Tensor) -> None:
    cache[..., 3][:, :, SLOTS] = rows[0, :3]


def joined_index(cache: Tensor, rows: Tensor) -> None:
    cache[2].view(16, 4)[torch.tensor([15, -16, 9])] = rows


def joined_whole(cache: Tensor, rows: Tensor) -> None:
    cache.view(48, 4)[torch.tensor([47, -48, 9])] = rows


def joined_window(cache: Tensor, rows: Tensor) -> None:
    cache.view(3, 2, 32)[PAIR] = rows[:2, :1, None].expand(2, 2, 32)


def joined_row(cache: Tensor, rows: Tensor) -> None:
    cache[1].view(16, 4)[torch.tensor([11])] = rows[0]
    cache.view(6, 32)[4] = 2


def joined_row_at_run_time(cache: Tensor, rows: Tensor, at: Tensor) -> None:
    cache[1].view(16, 4).index_copy_(0, at, rows[:1])


def accumulated(cache: Tensor, rows: Tensor) -> None:
    cache[0, 1].index_put_((torch.tensor([3, 3, -5]),), rows, accumulate=True)
    cache[2].view(16, 4).index_add_(0, torch.tensor([8, 8, 0]), rows)


def transposed_index(cache: Tensor, rows: Tensor) -> None:
    cache[1].permute(1, 2, 0)[SLOTS] = rows.unsqueeze(-1)


def transposed_windows(cache: Tensor, rows: Tensor) -> None:
    cache[2].permute(2, 0, 1)[:, :, SLOTS] = rows.t().unsqueeze(1)


def transposed_row(cache: Tensor, rows: Tensor) -> None:
    cache.transpose(0, 2)[6] = rows[0]


def twice_with_reads(cache: Tensor, rows: Tensor) -> Tensor:
    keys, values = cache[1].unbind(0)
    keys[SLOTS] = rows
    before = keys.clone()
    keys[[6, 0, 3]] = values[SLOTS] + keys.amax()
    values[SLOTS] = before[SLOTS]
    return before + keys


WHOLE = [value for value in list(globals().values()) if callable(value) and value.__module__ == __name__]


@pytest.mark.parametrize("function", WHOLE, ids=lambda function: function.__name__)
def test_writes_are_into_the_whole(function) -> None:
    inputs = [torch.randn(SIZES), torch.randn(3, 4)]
    if function is joined_row_at_run_time:
        inputs.append(torch.tensor([13]))
    program = ir.export_stablehlo(ir.import_callable(function, *inputs))
    ours, wanted = ([value.clone() for value in inputs] for _ in range(2))
    results, expected = program.run(*ours), function(*wanted)
    assert torch.equal(ours[0], wanted[0])
    if expected is not None:
        torch.testing.assert_close(results[0], expected)
    written = re.findall(
        r"dynamic_update_slice.*-> tensor<([\dx]+)xf32>|^    }\) : .*-> tensor<([\dx]+)xf32>", program.text, re.M
    )
    sizes = [math.prod(map(int, (one or two).split("x"))) for one, two in written]
    assert sizes
    assert set(sizes) == {math.prod(SIZES)}


def wide_piece(cache: Tensor, rows: Tensor) -> None:
    cache[0, :, 2:6][:, PAIR] = rows[:2]


def half_of_joined(cache: Tensor, rows: Tensor) -> None:
    cache.view(6, 32)[:, 8:24] = 3


def split(cache: Tensor, rows: Tensor) -> None:
    cache.view(3, 2, 2, 4, 4)[:, :, PAIR, 2] = rows[:2]


@pytest.mark.parametrize("function", [wide_piece, half_of_joined, split], ids=lambda function: function.__name__)
def test_other_views_are_written_too(function) -> None:
    inputs = [torch.randn(SIZES), torch.randn(3, 4)]
    program = ir.export_stablehlo(ir.import_callable(function, *inputs))
    ours, wanted = ([value.clone() for value in inputs] for _ in range(2))
    program.run(*ours)
    function(*wanted)
    assert torch.equal(ours[0], wanted[0])
