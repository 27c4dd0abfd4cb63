"""What Inductor gets wrong comes out right here; that Inductor alone still gets it wrong tells whether it is needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

ROWS = torch.tensor([1, 3, 2])


def _assigned(d: Tensor):
    a = d.index_put((ROWS,), torch.tensor(0.5))
    a.index_put_((a > 1,), torch.tensor(1.0))
    return a * 1, a


def _scattered(d: Tensor):
    a = d.scatter(0, torch.zeros(1, 5, dtype=torch.int64), 7.0)
    a[a > 1] = 2
    return a * 1, a


def _added(d: Tensor):
    a = d.index_add(0, ROWS, torch.ones(3, 5))
    a[a > 1] = 2
    return a * 1, a


def _accumulated(d: Tensor):
    a = d.index_put((ROWS,), torch.tensor(0.5))
    a.index_put_((a[:, 0] > 0.2,), torch.tensor([3.0]), True)
    return a * 1, a


def _caller_sees(d: Tensor):
    d.index_put_((ROWS,), torch.tensor(0.5))
    d.index_put_((d > 1,), torch.tensor(1.0))
    return d * 1


def _expanded_constant(d: Tensor):
    return torch.tensor(-2.0).expand(4, 5).transpose(0, 1) * 1, d + torch.tensor(3)


def _bits_of_constant(d: Tensor):
    d.view(torch.int32).copy_(torch.tensor(-2, dtype=torch.int32))


def _rows_moved(d: Tensor):
    x = d * 1
    x.index_put_((ROWS,), x[:3].clone())
    return x


def _own_rows_moved(d: Tensor):
    d.index_put_((ROWS,), d[:3].clone())
    return d * 2


def _rows_of_itself(d: Tensor):
    x = d * 1
    return torch.index_put(x, (ROWS - 1,), x[:3])


def _piece_moved(d: Tensor):
    x = d * 1
    x.index_put_((ROWS,), x.split(3)[0].clone())
    return x


def _rows_added(d: Tensor):
    x = d * 1
    x.index_add_(0, ROWS, x[:3].clone())
    return x


def _places_of_itself(d: Tensor):
    x = d[:, 0].long() % 4
    x.index_put_((x[:3].clone(),), torch.tensor([3, 1, 2]))
    return x


def _folded_signs(d: Tensor):
    z = torch.zeros(2, dtype=torch.complex64).fill_(-3)
    return torch.view_as_real(z * z), d + 1


PROGRAMS = [
    _rows_moved,
    _own_rows_moved,
    _rows_of_itself,
    _piece_moved,
    _rows_added,
    _places_of_itself,
    _folded_signs,
    _assigned,
    _scattered,
    _added,
    _accumulated,
    _caller_sees,
    _expanded_constant,
    _bits_of_constant,
]


def _run(program, run):
    d = ((torch.arange(20) * 7 + 30) % 13 - 4).float().view(4, 5)
    results = run(d)
    results = results if isinstance(results, tuple) else (results,)
    return [None if r is None else r.contiguous().view(torch.uint8) for r in (*results, d)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program):
    torch._dynamo.reset()
    got = _run(program, torch.compile(program, backend="vllm_ir"))
    for mine, eager in zip(got, _run(program, program), strict=True):
        assert mine is eager is None or torch.equal(mine, eager)


@pytest.mark.parametrize("program", [_scattered, _added, _rows_moved, _own_rows_moved])
def test_inductor_alone_is_wrong(program):
    torch._dynamo.reset()
    got = _run(program, torch.compile(program, backend="inductor"))
    eager = _run(program, program)
    assert not all(mine is theirs is None or torch.equal(mine, theirs) for mine, theirs in zip(got, eager, strict=True))
