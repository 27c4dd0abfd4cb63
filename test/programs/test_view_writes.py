"""Every view operator with every kind of write through it; the base is read before and afterwards."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

View = Callable[[Tensor], Tensor]
Write = Callable[[Tensor, Tensor], object]


@torch.library.custom_op("view_writes::triple", mutates_args=("x",))
def triple(x: Tensor, by: Tensor) -> None:
    x.mul_(3).add_(by)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    count = torch.Size(shape).numel()
    if dtype.is_complex:
        return torch.complex(numbers(*shape), numbers(*shape) * 0.5).to(dtype)
    return (torch.arange(count) % 23 + 1).to(dtype).reshape(shape)


def matrix() -> Tensor:
    return numbers(4, 6)


def cube() -> Tensor:
    return numbers(2, 3, 4)


def line() -> Tensor:
    return numbers(24)


def square() -> Tensor:
    return numbers(4, 4)


def transposed() -> Tensor:
    return numbers(6, 4).t()


def with_gaps() -> Tensor:
    return numbers(5, 9)[1:, 1:8:2]


def thin() -> Tensor:
    return numbers(4, 1, 6)


def waves() -> Tensor:
    return numbers(4, 6, dtype=torch.complex64)


def pairs() -> Tensor:
    return numbers(4, 6, 2)


def bytes_() -> Tensor:
    return numbers(4, 16, dtype=torch.uint8)


VIEWS: dict[str, tuple[Callable[[], Tensor], View]] = {
    "select": (matrix, lambda x: x.select(0, 2)),
    "select last": (matrix, lambda x: x.select(1, -1)),
    "select to a scalar": (line, lambda x: x[5]),
    "slice": (matrix, lambda x: x[1:3]),
    "slice with a step": (matrix, lambda x: x[:, 1::2]),
    "slice from behind": (matrix, lambda x: x[-3:-1]),
    "slice beyond the end": (matrix, lambda x: x[2:100]),
    "slice of everything": (matrix, lambda x: x[:]),
    "narrow": (matrix, lambda x: x.narrow(1, 2, 3)),
    "diagonal": (matrix, lambda x: x.diagonal()),
    "diagonal above": (matrix, lambda x: x.diagonal(2)),
    "diagonal below, dimensions swapped": (cube, lambda x: x.diagonal(-1, 2, 0)),
    "permute": (cube, lambda x: x.permute(2, 0, 1)),
    "permute with negative dimensions": (cube, lambda x: x.permute(-1, 0, -2)),
    "transpose": (cube, lambda x: x.transpose(0, -1)),
    "t": (matrix, lambda x: x.t()),
    "T": (square, lambda x: x.T),
    "mT": (cube, lambda x: x.mT),
    "swapaxes": (cube, lambda x: x.swapaxes(0, 1)),
    "movedim": (cube, lambda x: x.movedim(0, 2)),
    "view": (matrix, lambda x: x.view(3, 8)),
    "view with -1": (matrix, lambda x: x.view(2, -1)),
    "view of a transposed tensor": (transposed, lambda x: x.t().view(-1)),
    "reshape": (matrix, lambda x: x.reshape(2, 2, 6)),
    "flatten": (cube, lambda x: x.flatten(1)),
    "unflatten": (matrix, lambda x: x.unflatten(1, (2, 3))),
    "ravel": (matrix, lambda x: x.ravel()),
    "unsqueeze": (matrix, lambda x: x.unsqueeze(1)),
    "squeeze": (thin, lambda x: x.squeeze()),
    "squeeze of one dimension": (thin, lambda x: x.squeeze(1)),
    "squeeze of several dimensions": (thin, lambda x: x.squeeze((0, 1))),
    "expand that adds nothing": (thin, lambda x: x.expand(4, 1, 6)),
    "expand by a dimension of size 1": (matrix, lambda x: x.expand(1, 4, 6)),
    "broadcast_to": (matrix, lambda x: x.broadcast_to(1, 4, 6)),
    "split": (matrix, lambda x: x.split(3, 1)[1]),
    "split, the short last piece": (matrix, lambda x: x.split(3)[1]),
    "split_with_sizes": (matrix, lambda x: x.split([1, 3, 2], 1)[1]),
    "chunk": (matrix, lambda x: x.chunk(2)[1]),
    "chunk of a line in uneven pieces": (line, lambda x: x.chunk(5)[4]),
    "unbind": (cube, lambda x: x.unbind(1)[2]),
    "tensor_split": (matrix, lambda x: x.tensor_split(4, 1)[1]),
    "hsplit": (matrix, lambda x: x.hsplit(3)[1]),
    "unfold with gaps": (line, lambda x: x.unfold(0, 3, 5)),
    "unfold of a column": (matrix, lambda x: x.unfold(1, 2, 3)),
    "as_strided with gaps": (line, lambda x: x.as_strided((3, 2), (7, 3), 1)),
    "as_strided in column order": (line, lambda x: x.as_strided((4, 6), (1, 4))),
    "as_strided of a view": (matrix, lambda x: x[1:].as_strided((2, 3), (6, 2), 3)),
    "as_strided of a transposed tensor": (transposed, lambda x: x.as_strided((5,), (4,), 2)),
    "view as int32": (matrix, lambda x: x.view(torch.int32)),
    "view as narrower elements": (matrix, lambda x: x.view(torch.int16)),
    "view as wider elements": (bytes_, lambda x: x.view(torch.int64)),
    "view as wider elements of a slice": (bytes_, lambda x: x[:, 4:12].view(torch.int32)),
    "view_as_real": (waves, torch.view_as_real),
    "view_as_complex": (pairs, torch.view_as_complex),
    "conj": (waves, lambda x: x.conj()),
    "real": (waves, lambda x: x.real),
    "imag": (waves, lambda x: x.imag),
    "mH": (waves, lambda x: x.mH),
    "imag of conj, a negative view": (waves, lambda x: x.conj().imag),
    "detach": (matrix, lambda x: x.detach()),
    "data": (matrix, lambda x: x.data),
    "alias": (matrix, torch.ops.aten.alias.default),
    "index with None": (matrix, lambda x: x[None, 1]),
    "index with an ellipsis": (cube, lambda x: x[..., 1]),
    "index with everything": (cube, lambda x: x[1, None, ::2, -1:]),
    "view_as": (matrix, lambda x: x.view_as(numbers(2, 12))),
    "slice of memory with gaps": (with_gaps, lambda x: x[1:3]),
    "transpose of memory with gaps": (with_gaps, lambda x: x.t()),
    "reshape of memory with gaps": (with_gaps, lambda x: x.unflatten(1, (2, 2))),
}


def _rows(v: Tensor) -> Tensor:
    return torch.tensor([v.shape[0] - 1, 0])


WRITES: dict[str, tuple[int, Write]] = {
    "add_": (0, lambda v, s: v.add_(s)),
    "add_ of a number": (0, lambda v, s: v.add_(2)),
    "mul_": (0, lambda v, s: v.mul_(2)),
    "copy_": (0, lambda v, s: v.copy_(s)),
    "copy_ of another dtype": (0, lambda v, s: v.copy_(s.real.to(torch.float64))),
    "copy_ of a row": (1, lambda v, s: v.copy_(s[:1])),
    "fill_": (0, lambda v, s: v.fill_(7)),
    "zero_": (0, lambda v, s: v.zero_()),
    "index_put_": (1, lambda v, s: v.index_put_((_rows(v),), s[:2] if v.shape[0] > 1 else s[:1])),
    "index_put_, accumulating twice": (
        1,
        lambda v, s: v.index_put_((torch.tensor([0, 0]),), s[:1].expand(2, *s.shape[1:]), True),
    ),
    "set by a mask": (1, lambda v, s: v.__setitem__(s.real > 9, 5)),
    "masked_fill_": (0, lambda v, s: v.masked_fill_(s.real > 9, 5)),
    "scatter_": (1, lambda v, s: v.scatter_(0, torch.zeros_like(s[:1].real, dtype=torch.int64), s)),
    "index_add_": (1, lambda v, s: v.index_add_(0, torch.tensor([0]), s[:1])),
    "index_copy_": (1, lambda v, s: v.index_copy_(0, torch.tensor([v.shape[0] - 1]), s[:1])),
    "out=": (0, lambda v, s: torch.mul(s, 3, out=v)),
    "addcmul_": (0, lambda v, s: v.addcmul_(s, s)),
    "custom operator": (0, lambda v, s: torch.ops.view_writes.triple(v, s)),
    "set one element": (1, lambda v, s: v.__setitem__((0,) * v.dim(), 9)),
    "set a slice": (1, lambda v, s: v.__setitem__((Ellipsis, slice(0, None, 2)), s[..., ::2] * 2)),
}


def possible(view: str) -> list[str]:
    """The writes that eager mode can make through a view."""
    make, take = VIEWS[view]
    window = take(make())
    # PyTorch's fallback for lazily conjugated operands fails for operators that return nothing.
    lazy = window.is_conj() or window.is_neg()
    return [name for name, (rank, _) in WRITES.items() if window.dim() >= rank and not (lazy and "custom" in name)]


def write_through(base: Tensor, values: Tensor, view: str, write: str) -> object:
    window = VIEWS[view][1](base)
    before = base * 1, window * 2
    WRITES[write][1](window, values)
    return before, window * 2, base * 1


def source_for(view: str) -> Tensor:
    make, take = VIEWS[view]
    window = take(make())
    return numbers(*window.shape, dtype=window.dtype)


@pytest.mark.parametrize("view", VIEWS)
def test_all_writes_through_view(view: str, check: Callable[..., None]) -> None:
    """Each write with a base of its own, all in one program."""
    writes = possible(view)

    def program(bases: list[Tensor], values: Tensor) -> object:
        return [write_through(base, values, view, write) for base, write in zip(bases, writes, strict=True)]

    check(program, lambda: ([VIEWS[view][0]() for _ in writes], source_for(view)))


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_writes_one_after_the_other(view: str, check: Callable[..., None]) -> None:
    """All writes through one view, and the last one through the base."""

    def program(base: Tensor, values: Tensor) -> object:
        made = [write_through(base, values, view, write) for write in possible(view)]
        base.add_(1)
        return made, VIEWS[view][1](base) * 1

    check(program, lambda: (VIEWS[view][0](), source_for(view)), text=True)


@pytest.mark.slow
@pytest.mark.parametrize(("view", "write"), [(view, write) for view in VIEWS for write in possible(view)])
def test_write_through_view(view: str, write: str, check: Callable[..., None]) -> None:
    check(lambda base, values: write_through(base, values, view, write), lambda: (VIEWS[view][0](), source_for(view)))


@pytest.mark.parametrize("view", ["select", "slice with a step", "T", "reshape", "unbind", "unfold with gaps", "real"])
def test_through_dynamo(view: str, check: Callable[..., None]) -> None:
    # Dynamo itself refuses `out=` tensors with gaps.
    writes = [write for write in possible(view) if write != "out="]

    def program(bases: list[Tensor], values: Tensor) -> object:
        return [write_through(base, values, view, write) for base, write in zip(bases, writes, strict=True)]

    check(program, lambda: ([VIEWS[view][0]() for _ in writes], source_for(view)), dynamo=True)


DYNAMIC_VIEWS = ["slice with a step", "diagonal", "permute", "view with -1", "unflatten", "chunk", "split_with_sizes"]


def check_with_dynamic_sizes(view: str, check: Callable[..., None]) -> None:
    writes = [write for write in ("add_", "copy_ of a row", "index_put_", "custom operator") if write in possible(view)]

    def program(bases: list[Tensor], values: Tensor) -> object:
        return [write_through(base, values, view, write) for base, write in zip(bases, writes, strict=True)]

    check(program, lambda: ([VIEWS[view][0]() for _ in writes], source_for(view)), dynamo=True, dynamic=True)


@pytest.mark.parametrize("view", DYNAMIC_VIEWS)
def test_dynamic_sizes(view: str, check: Callable[..., None]) -> None:
    check_with_dynamic_sizes(view, check)


@pytest.mark.slow
# The layout of the storage of a transposed tensor of dynamic sizes is not known, and that is said.
@pytest.mark.parametrize("view", sorted(VIEWS.keys() - {*DYNAMIC_VIEWS, "as_strided of a transposed tensor"}))
def test_more_dynamic_sizes(view: str, check: Callable[..., None]) -> None:
    check_with_dynamic_sizes(view, check)
