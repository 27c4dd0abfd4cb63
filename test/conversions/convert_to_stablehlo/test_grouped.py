"""Products of grouped rows, against a loop over the groups; small integers, so that all sums are exact."""

import pytest
import torch
from xdsl.utils.exceptions import PassFailedException


def numbers(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-3, 4, sizes, generator=torch.Generator().manual_seed(seed)).bfloat16()


def expected(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    start, parts = 0, []
    for matrix, end in zip(matrices, ends.tolist(), strict=True):
        parts.append(rows[start:end] @ matrix)
        start = end
    return torch.cat([*parts, rows.new_zeros(len(rows) - start, matrices.shape[2])])


@pytest.mark.parametrize("ends", [[2, 2, 3, 3], [0, 5, 9, 16], [16, 16, 16, 16], [1, 4, 8, 12]])
def test_rows_of_groups(ends: list[int], xla) -> None:
    """Few and many rows, empty groups, and rows behind the last group, which become zeros."""
    count = 3 if ends[-1] == 3 else 16
    rows, matrices, offsets = numbers(count, 16), numbers(4, 16, 8, seed=1), torch.tensor(ends, dtype=torch.int32)
    (result,) = xla.execute(
        str(xla.converted(torch._grouped_mm, rows, matrices, offsets)),
        [xla.to_numpy(value) for value in (rows, matrices, offsets)],
    )
    torch.testing.assert_close(
        xla.to_torch(result, torch.bfloat16), expected(rows, matrices, offsets), rtol=0.0, atol=0.0
    )


def test_batches(xla) -> None:
    xla.compare(torch._grouped_mm, numbers(2, 3, 16), numbers(2, 16, 8, seed=1))


def test_groups_inside_sums_are_refused(xla) -> None:
    offsets = torch.tensor([8, 16], dtype=torch.int32)
    with pytest.raises(PassFailedException, match=r"_grouped_mm.*2 and 2 dimensions have groups"):
        xla.converted(lambda x, y, o: torch._grouped_mm(x, y.t(), o), numbers(8, 16), numbers(8, 16), offsets)
