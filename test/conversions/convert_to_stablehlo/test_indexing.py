"""Lookups by index tensors, against eager: all of them only move data, and are exact."""

import pytest
import torch
from xdsl.utils.exceptions import PassFailedException

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool)


def numbered(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Different elements, as far as the type has that many."""
    count = torch.Size(sizes).numel()
    numbers = torch.arange(count).reshape(sizes)
    return numbers % 2 == 0 if dtype == torch.bool else (numbers % 127).to(dtype)


def at(x: torch.Tensor, *indices: torch.Tensor | None) -> torch.Tensor:
    """Lookup with indices as they are: brackets make numbers of tensors without dimensions."""
    return torch.ops.aten.index(x, indices)


def test_index(xla) -> None:
    """Neighbouring and separate dimensions, negative and broadcast indices, those without dimensions, several types."""

    def program(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, k: torch.Tensor, s: torch.Tensor) -> object:
        return (
            *(x[i], x[:, i], x[:, :, i], x[i, j], x[:, i, j], x[i, :, j], x[i, :, :, j], x[:, i, :, j]),
            *(x[i, j, k], x[i, :, j, k], x[i[:, None], j[None]], x[:, i[:, None], j[None, :]]),
            *(x[i[:, None], :, j[None, :]], at(x, s), at(x, None, s), at(x, s, i), at(x, s, None, i), x[..., i]),
            *(x[i, 1], x[1, i], x[i, 1:3, j], x[None, i], x[:, None, i], x[i[:1]], x[:, i[:1], :, i[:1]]),
            *(at(x, s, None, s), at(x, s, s, s, s), at(x, None, i, None, None)),
        )

    i, j, k = torch.tensor([0, -1, 2]), torch.tensor([1, 0, -2]), torch.tensor([-3, 2, 1], dtype=torch.int32)
    xla.compare(program, numbered(3, 4, 5, 6), i, j, k, torch.tensor(-2))


def test_index_of_types(xla) -> None:
    i = torch.tensor([[3, 0], [-1, 2]])
    xla.compare(
        lambda i, *xs: [(x[i], x[:, i], torch.take(x, i)) for x in xs],
        i,
        *(numbered(4, 5, dtype=dtype) for dtype in DTYPES),
    )


def test_empty(xla) -> None:
    """No index, nothing to look up, and nothing to look it up in."""

    def program(x: torch.Tensor, none: torch.Tensor, y: torch.Tensor) -> object:
        lookups = (x[none], x[:, none], x[none, none], y[none], y[:, none], x.index_select(1, none), x.take(none))
        return *lookups, torch.gather(x, 1, none.view(0, 1)), torch.gather(x, 0, none.view(0, 1))

    xla.compare(program, numbered(3, 4), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3))


def test_embedding_and_index_select(xla) -> None:
    def program(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor, y: torch.Tensor) -> object:
        return (
            *(torch.nn.functional.embedding(i, x), torch.nn.functional.embedding(i[0], x, padding_idx=1)),
            *(x.index_select(0, i[0]), x.index_select(-1, i[1]), x.index_select(1, s), y.index_select(0, s - s)),
            *(x.index_select(0, torch.arange(3)), torch.nn.functional.embedding(s, x)),
            *(torch.nn.functional.embedding(i[:1, :1], x),),
        )

    xla.compare(program, numbered(5, 4), torch.tensor([[0, 3, 1], [2, 2, 0]]), torch.tensor(2), torch.tensor(7.0))


def test_gather(xla) -> None:
    def program(x: torch.Tensor, i: torch.Tensor, s: torch.Tensor, y: torch.Tensor) -> object:
        return (
            *(torch.gather(x, dim, i) for dim in (0, 1, -1)),
            *(torch.take_along_dim(x, i[:, :1], 2), torch.gather(y, 0, s), torch.gather(y, 0, s.view(1))),
            *(torch.gather(x, 0, i[:, :1, :1].expand(2, 3, 4)), torch.gather(x, 1, i[:1, :, :1].expand(2, 2, 4))),
            *(torch.gather(x, 2, i[:1, :1].expand(2, 3, 3)), torch.gather(x, 1, i[:1, :, :1].expand(2, 2, 3))),
        )

    i = torch.tensor([[[0, 1, 1], [1, 0, 0]], [[1, 1, 0], [0, 0, 1]]])
    xla.compare(program, numbered(2, 3, 4), i, torch.tensor(0), torch.tensor(3.0))


def test_gather_and_scatter_of_nothing(xla) -> None:
    """An index without elements need not have the dimensions of the value."""

    def program(x: torch.Tensor, i: torch.Tensor) -> object:
        source = torch.empty(2, 0)
        return (
            *(x.gather(0, i), x.scatter(0, i, 1.0), x.scatter(0, i, source), x.scatter_add(0, i, source)),
            x.scatter_reduce(0, i, source, "amax"),
        )

    xla.compare(program, numbered(5), torch.empty(2, 0, dtype=torch.int64))


def test_rows_stay_rows(xla) -> None:
    """An index that is only repeated along a dimension looks up rows, not elements."""
    x, i = numbered(6, 8), torch.tensor([5, 0, 3])
    for program in (
        lambda x, i: torch.gather(x, 0, i[:, None].expand(3, 8)),
        lambda x, i: x[i],
        lambda x, i: x.index_select(0, i),
    ):
        text = str(xla.converted(program, x, i))
        assert "slice_sizes = array<i64: 1, 8>" in text
        assert "tensor<3xi32>" in text
    assert "dynamic_slice" in str(xla.converted(lambda x, i: x[i[:1]], x, i))


def test_numbers_read_from_tensors(xla) -> None:
    def program(x: torch.Tensor, s: torch.Tensor) -> object:
        return torch.narrow(x, 0, s, 2) + 1, torch.narrow_copy(x, 1, 1, 2)

    xla.compare(program, numbered(5, 4), torch.tensor(3))
    xla.compare(lambda i: torch.nn.functional.one_hot(i, 6), torch.tensor([[0, 5], [3, 1]]))


@pytest.mark.parametrize(
    ("program", "operator"),
    [
        (lambda x: x[x > 0], "aten.index.Tensor"),
        (lambda x: torch.nonzero(x), "aten.nonzero"),
        (lambda x: torch.masked_select(x, x > 0), "aten.masked_select"),
        (lambda x: torch.unique(x), "aten._unique2"),
    ],
)
def test_results_of_unknown_size_are_refused(program, operator: str, xla) -> None:
    with pytest.raises(PassFailedException, match=operator) as caught:
        xla.converted(program, numbered(3, 4))
    assert "test_indexing.py" in str(caught.value)
    assert "select with torch.where" in str(caught.value)
