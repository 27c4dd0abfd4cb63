"""Overlap of tensors, against the bytes they touch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from vllm_ir.frontends.ops.memory import fresh, may_overlap, overlaps_itself, separated, without_overlap

BUFFER = torch.zeros(64, dtype=torch.float32)


@st.composite
def windows(draw: st.DrawFn) -> Tensor:
    sizes = draw(st.lists(st.integers(0, 4), max_size=3))
    strides = [draw(st.integers(0, 9)) for _ in sizes]
    reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True) if size)
    last = 63 if 0 in sizes else 63 - reach
    if last < 0:
        strides, last = [0] * len(sizes), 63
    return BUFFER.as_strided(sizes, strides, draw(st.integers(0, last)))


def elements(tensor: Tensor) -> list[int]:
    index = torch.arange(64).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    return index.flatten().tolist()


@given(windows(), windows())
def test_overlap_is_never_missed(left: Tensor, right: Tensor) -> None:
    if set(elements(left)) & set(elements(right)):
        assert may_overlap(left, right)
        assert may_overlap(right, left)


@given(windows())
def test_self_overlap_is_never_missed(tensor: Tensor) -> None:
    if len(set(elements(tensor))) < tensor.numel():
        assert overlaps_itself(tensor)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_pieces_of_one_tensor_are_apart(dim: int) -> None:
    pieces = torch.zeros(4, 4, 4).split([1, 2, 1], dim)
    for i, left in enumerate(pieces):
        assert not overlaps_itself(left)
        for j, right in enumerate(pieces):
            assert may_overlap(left, right) == (i == j)
    assert not may_overlap(pieces[0].transpose(1, 2), pieces[1])


def test_neighbouring_halves_of_rows_from_different_rows() -> None:
    base = torch.zeros(6, 8)
    assert not may_overlap(base[1:4, :4], base[:, 4:])
    assert not may_overlap(base[2, :4], base[:, 4:])
    assert may_overlap(base[2, :5], base[:, 4:])
    assert not may_overlap(base[:, ::2], base[:, 1::2])


def test_overlap_with_itself() -> None:
    assert overlaps_itself(torch.zeros(1).expand(4))
    assert overlaps_itself(torch.zeros(8).unfold(0, 4, 2))
    assert not overlaps_itself(torch.zeros(8).unfold(0, 4, 4))
    assert not overlaps_itself(torch.zeros(4, 8)[:, 2:5].t())
    assert not overlaps_itself(torch.zeros(1, 4).expand(1, 4))


def test_memory_shared_outside_torch_counts() -> None:
    array = np.zeros(8, dtype=np.float32)
    left, right = torch.from_numpy(array), torch.from_numpy(array)
    assert left.untyped_storage()._cdata != right.untyped_storage()._cdata
    assert may_overlap(left, right)
    assert may_overlap(left.view(torch.int16)[1:3], right[:1])
    assert not may_overlap(left.view(torch.int16)[2:3], right[:1])


def test_separated_copies_only_what_would_change_with_another_argument() -> None:
    x, weight = torch.arange(8.0).view(2, 4), torch.ones(4)
    first, second, same_weight, number = separated([x, x, weight, 3], (0, 1))
    assert first is x
    assert second is not x
    assert torch.equal(second, x)
    assert same_weight is weight
    assert number == 3
    row, kept = separated([x[0], [x]], (0,))
    assert not may_overlap(row, x)
    assert kept[0] is x
    left, right = x.chunk(2, dim=1)
    assert all(a is b for a, b in zip(separated([left, right], (0, 1)), (left, right), strict=True))
    assert separated([None, x], (0, 1))[1] is x


def test_fresh_results_have_storages_of_their_own() -> None:
    x, y = torch.zeros(4), torch.ones(4)
    results = fresh([x, y, y[:2], y], [x.view(2, 2)])
    assert results[1] is y
    assert len({result.untyped_storage().data_ptr() for result in (*results, x)}) == 5
    left, right = without_overlap(torch.zeros(4, 4).chunk(2, 1), [x])
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
    assert not may_overlap(*without_overlap([y, y], []))
