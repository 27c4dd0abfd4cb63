"""Programs that write their arguments; Inductor alone gets many of them wrong, or copies whole tensors for them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

ROWS = 64


@torch.library.custom_op("post_grad::store", mutates_args=("keys", "values"))
def store(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    keys.index_copy_(0, slots, k)
    values.index_copy_(0, slots, v)


@torch.library.custom_op("post_grad::double_", mutates_args=("x",))
def double_(x: Tensor) -> None:
    x.mul_(2)


def stacked(k: Tensor, slots: Tensor, cache: Tensor) -> Tensor:
    for layer in range(3):
        cache[layer, 0].index_put_((slots,), k)
        cache[layer, 1].index_put_((slots,), k + 1)
        k = k + cache[layer, 0][slots] * cache[layer, 1][slots]
    return k


def stacked_custom(k: Tensor, slots: Tensor, cache: Tensor) -> Tensor:
    total = k * 0
    for layer in range(3):
        store(k, k * 2, cache[layer, 0], cache[layer, 1], slots)
        k = k + cache[layer, 0][slots]
        total = total + cache[layer, 1][slots]
    return k + total


def unbound(k: Tensor, slots: Tensor, cache: Tensor) -> Tensor:
    for layer in cache.unbind(0):
        keys, values = layer.unbind(0)
        keys[slots] = k
        values[slots] = k - 1
        k = k + keys[slots] * values[slots]
    return k


def slices(k: Tensor, slots: Tensor, cache: Tensor) -> Tensor:
    for layer in range(3):
        cache[layer, 0, :4].copy_(k)
        cache[layer, 1, 4:8].copy_(k * 2)
        k = k + cache[layer, 0, 1:5] + cache[layer, 1, 3:7]
    return k


def interleaved(k: Tensor, slots: Tensor, cache: Tensor) -> Tensor:
    """Keys and values of all layers alternate in memory."""
    for part in range(2):
        cache[:, part].index_put_((torch.arange(3)[:, None], slots[None]), k * (part + 1))
    return cache[:, 0][:, slots].sum(0) - cache[:, 1][:, slots].sum(0)


CACHES = (stacked, stacked_custom, unbound, slices, interleaved)


def cache_arguments() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(4, 8), torch.randperm(ROWS)[:4], torch.randn(3, 2, ROWS, 8)]


def old_read_behind_custom_write(x: Tensor) -> Tensor:
    old = x[0] * 3
    double_(x)
    return old + x[0]


def old_sum_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    old = x.sum()
    double_(x)
    return old, x * 1


def old_read_behind_copy(x: Tensor) -> Tensor:
    old = x[1] * 3
    x[:3].copy_(x[3:6] + 1)
    return old + x[1]


def shifted(x: Tensor) -> Tensor:
    x[1:] = x[:-1] + 1
    return x.sum(0)


def reversed_rows(x: Tensor) -> Tensor:
    x.copy_(x.flip(0))
    return x[0] * 1


def square_transposed(x: Tensor) -> Tensor:
    x.copy_(x.t() + 0)
    return x.sum(1)


def normalised(x: Tensor) -> Tensor:
    x.copy_(torch.softmax(x, -1))
    return x[:, 0] * 2


def scattered_from_itself(x: Tensor) -> Tensor:
    x.scatter_(0, torch.tensor([[3, 2, 1, 0, 4, 5]]), x[:1] * 2)
    return x.clone()


def gathered_from_itself(x: Tensor) -> Tensor:
    x[torch.tensor([0, 2, 4])] = x[torch.tensor([1, 3, 5])]
    return x + 0


def cast_and_expanded(x: Tensor) -> Tensor:
    x[2:4] = (x[0] * 10).to(torch.int32)
    return x * 2


def index_from_itself(x: Tensor) -> Tensor:
    x[x[:2, 0].abs().long() % 6] = 1.0
    return x * 1


def updated_copy_written_back(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x * 2
    new = torch.slice_scatter(h, x[3:5], 0, 0, 2)
    x.copy_(new)
    x[0].mul_(3)
    return new, x.sum(0)


def complex_written(x: Tensor) -> Tensor:
    z = torch.complex(x, x)
    z[0] = z[1] * 2
    x.copy_(z.real)
    return z.imag + 0


def written_twice_with_a_read_between(x: Tensor) -> Tensor:
    x[torch.tensor([1, 2])] = 5.0
    rolled = x[(torch.arange(6) + 3) % 6] * 2
    x.copy_(x * 3 + 1)
    return rolled + x


def piece_written_twice(x: Tensor) -> Tensor:
    x[:4] = x[1:5] * 2
    turned = x.flip(0)[:4] + 1
    x[:4] = turned * 3
    return turned + x[:4]


def cat_then_written(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x * 2
    both = torch.cat([h, x])
    double_(h)
    return both, h


def two_arguments_swapped(x: Tensor) -> Tensor:
    first, second = x[:3], x[3:]
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)
    return kept * 2


def fresh_copy_of_argument(x: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(1)
    return x * 1, x[0] + 0


HAZARDS: Sequence[Callable[[Tensor], object]] = (
    old_read_behind_custom_write,
    old_sum_returned,
    old_read_behind_copy,
    shifted,
    reversed_rows,
    square_transposed,
    normalised,
    scattered_from_itself,
    gathered_from_itself,
    cast_and_expanded,
    index_from_itself,
    updated_copy_written_back,
    complex_written,
    written_twice_with_a_read_between,
    piece_written_twice,
    cat_then_written,
    two_arguments_swapped,
    fresh_copy_of_argument,
)


def square() -> Tensor:
    """Integers, of which sums are the same in any order."""
    torch.manual_seed(1)
    return torch.randint(-8, 8, (6, 6)).float()
