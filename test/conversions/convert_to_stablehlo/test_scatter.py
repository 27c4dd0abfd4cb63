"""Writes by index tensors, against eager: exact, since numbers are small integers in every type."""

import pytest
import torch
from xdsl.utils.exceptions import PassFailedException

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.float64)


def numbered(*sizes: int, dtype: torch.dtype = torch.float32, start: int = 0) -> torch.Tensor:
    """Small integers in order."""
    count = torch.Size(sizes).numel()
    return ((torch.arange(count) + start) % 11).reshape(sizes).to(dtype)


def put(x: torch.Tensor, indices: list, values: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    return torch.ops.aten.index_put(x, indices, values, accumulate)


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool, xla) -> None:
    """All arrangements of indices; accumulated values may be for one place."""

    def program(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, s: torch.Tensor, v: torch.Tensor) -> object:
        def written(*indices: torch.Tensor | None) -> torch.Tensor:
            sizes = torch.ops.aten.index(x, indices).shape
            return put(x, list(indices), v[: sizes.numel()].reshape(sizes), accumulate)

        return (
            *(written(i), written(None, i), written(i, j), written(i, None, j), written(None, i, j)),
            *(written(s), written(None, s), written(s, j), written(s, None, j), written(i[:, None], j[None, :])),
            *(written(i[:1]), written(None, i[:1], j[:1]), written(s, s, s)),
            *(put(x, [i], v[0], accumulate), put(x, [None, i], v[:1], accumulate), put(x, [i, j], v[:5], accumulate)),
        )

    i = torch.tensor([0, -1, 1, 2][: 3 if not accumulate else 4])
    j = torch.tensor([1, 0, -2, 1][: len(i)])
    if accumulate:
        i, j = torch.tensor([0, -1, 0]), torch.tensor([1, 0, 1])
    xla.compare(program, numbered(3, 4, 5), i, j, torch.tensor(-2), numbered(60, start=3))


def test_index_put_by_mask(xla) -> None:
    def program(x: torch.Tensor, m: torch.Tensor, r: torch.Tensor, v: torch.Tensor) -> object:
        return (
            *(put(x, [m], v[0, 0]), put(x, [r], v[0]), put(x, [r], v[:1]), put(x, [None, r[:2]], v[:1, :1])),
            *(put(x, [m], v[0, 0], True), put(x, [r], v[:2]), put(x, [r], v[:2], True), put(x, [m], v.view(-1)[:3])),
            *(torch.masked_scatter(x, m, v), torch.masked_scatter(x, m[:, :1], v), put(x, [r, None], v[:1])),
        )

    mask = torch.tensor([[True, False], [False, True], [False, True]])
    xla.compare(program, numbered(3, 2), mask, torch.tensor([True, False, True]), numbered(4, 2, start=5) * 2)


def test_slices_along_a_dimension(xla) -> None:
    def program(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor, v: torch.Tensor, y: torch.Tensor) -> object:
        return (
            *(x.index_copy(0, i, v), x.index_copy(1, i, v.t()), x.index_copy(1, s.view(1), v[:1].t())),
            *(x.index_add(0, i - i, v), x.index_add(0, i, v, alpha=2), x.index_fill(1, i, 7), x.index_fill(0, s, -1)),
            *(
                x.index_fill(1, i[:1], s),
                y.index_copy(0, s - s, y + 1),
                y.index_add(0, s - s, y),
                x.index_fill(-1, -i, 3),
            ),
            *(
                x.index_reduce(0, i - i, v, how, include_self=own)
                for how in ("prod", "amax", "amin")
                for own in (True, False)
            ),
            x.index_reduce(0, i - i, v, "mean"),
        )

    x, v = numbered(4, 4, dtype=torch.int32), numbered(3, 4, dtype=torch.int32, start=2)
    xla.compare(program, x, torch.tensor([3, 0, 1]), torch.tensor(2), v, torch.tensor(5, dtype=torch.int32))


def test_put(xla) -> None:
    def program(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> object:
        return torch.put(x, i, v), torch.put(x, i - i, v, accumulate=True), torch.put(x, i[:1], v[:1])

    xla.compare(program, numbered(3, 4), torch.tensor([5, -1, 0]), numbered(3, start=20))


def test_scatter(xla) -> None:
    """Sources larger than the index, indices smaller than the tensor, numbers, and tensors without dimensions."""

    def program(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor, s: torch.Tensor, y: torch.Tensor) -> object:
        column = i[:, :1].expand(3, 4)
        return (
            *(x.scatter(0, i, v), x.scatter(1, i, v), x.scatter(-1, i[:2], v), x.scatter(1, i[:, :1], 9)),
            *(x.scatter(0, column, v), x.scatter(0, column, 5), y.scatter(0, s, y + 1), x.scatter(0, i[:0], v)),
            *(x.scatter_add(0, i - i, v), x.scatter_add(0, column, v), y.scatter_add(0, s, y + 1)),
            *(x.scatter(0, i, v, reduce="add"), x.scatter(1, i - i, 2, reduce="multiply")),
        )

    i = torch.tensor([[0, 1], [3, 2], [1, 0]])
    xla.compare(program, numbered(4, 4), i, numbered(3, 4, start=4), torch.tensor(0), torch.tensor(4.0))


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(reduce: str, xla) -> None:
    def program(i: torch.Tensor, *xs: torch.Tensor) -> object:
        return [
            torch.scatter_reduce(x, 0, i, v, reduce, include_self=own)
            for x, v in zip(xs[::2], xs[1::2], strict=True)
            for own in (True, False)
        ]

    pairs = [
        tensor
        for dtype in DTYPES
        for tensor in (numbered(3, 4, dtype=dtype), numbered(4, 4, dtype=dtype, start=3) % 4 - 1)
    ]
    xla.compare(program, torch.tensor([[0, 1, 2, 0], [0, 1, 1, 2], [0, 0, 1, 1], [0, 2, 1, 1]]), *pairs)


def test_not_a_number_wins(xla) -> None:
    x, v = torch.zeros(2), torch.tensor([1.0, float("nan"), 3.0])
    xla.compare(
        lambda x, i, v: [torch.scatter_reduce(x, 0, i, v, how) for how in ("amax", "amin")],
        *(x, torch.tensor([0, 1, 1]), v),
    )


def test_rows_are_written_as_rows(xla) -> None:
    """Writes of whole rows scatter rows, and single ones are `dynamic_update_slice`; nothing is masked."""
    cache, slots, new = numbered(6, 8), torch.tensor([4, 1, 3]), numbered(3, 8)
    for program in (
        lambda x, i, v: put(x, [i], v),
        lambda x, i, v: x.index_copy(0, i, v),
        lambda x, i, v: x.scatter(0, i[:, None].expand(3, 8), v),
    ):
        text = str(xla.converted(program, cache, slots, new))
        assert "update_window_dims = [1]" in text
        assert "tensor<3xi32>" in text
        assert "iota" not in text
        assert text.count("tensor<6x8xf32>") <= 7  # argument, result and scatter, no other value of that size
    one = str(xla.converted(lambda x, i, v: x.index_copy(0, i, v), cache, slots[:1], new[:1]))
    assert "dynamic_update_slice" in one
    assert "scatter" not in one
    assert "indices_are_sorted = true" in str(
        xla.converted(lambda x, v: x.index_copy(0, torch.arange(3), v), cache, new)
    )


def test_a_mask_beside_an_index_is_refused(xla) -> None:
    x = numbered(3, 4)
    with pytest.raises(PassFailedException, match=r"index_put.*a mask is an index beside another"):
        xla.converted(lambda x, m, i: put(x, [m, i], x[0, 0]), x, x[:, 0] > 3, torch.tensor([1]))
