"""Reads and writes around writes in place that Inductor keeps in order by itself, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor

aten = torch.ops.aten
copy = aten.copy_.default
put = aten.index_put_.default

Program = Callable[[Tensor, Tensor], Sequence[Tensor]]


def write(window: Tensor, v: Tensor) -> None:
    """A write by an operator that Inductor only calls; the harness defines it."""
    torch.ops.inductor_hook.write.default(window, v)


def numbers(start: int = 0) -> Tensor:
    return ((torch.arange(2048) * 37 + start) % 101).to(torch.float32).reshape(8, 16, 16)


def cases(hook: ModuleType, programs: Mapping[str, Program]) -> dict[str, object]:
    """Programs of an argument that they write and one that they only read."""
    return {name: hook.Case(program, lambda: [numbers(), numbers(50)]) for name, program in programs.items()}


def scaled(x: Tensor) -> Tensor:
    return aten.mul.Tensor(x, 3)


def rows(count: int) -> Tensor:
    return aten.arange.default(count)


def windows_one_by_one(call: Callable[[Tensor, Tensor], object]) -> Program:
    """Windows that overlap or do not, each written from what was read behind the write before."""

    def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
        call(x[0], v[0])
        first = scaled(x[0])
        call(x[1], first)
        second = aten.add.Tensor(x[1], first)
        call(aten.permute.default(x[:3], [0, 2, 1]), v[5:8])
        third = aten.add.Tensor(aten.view.default(x, [128, 16])[30:50], 1)
        call(x[2:], v[2:])
        return [second, third, aten.sum.dim_IntList(x, [0]), x[2], scaled(x)]

    return program


def returned(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    old, part = aten.clone.default(x), x[2:4]
    copy(x[1], v[0])
    return [x, part, aten.permute.default(x, [2, 0, 1]), old]


def swapped_contents(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    old = aten.clone.default(x)
    copy(x, v)
    copy(v, old)
    return [aten.sub.Tensor(x, v)]


def temporary(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    hidden = scaled(x)
    before = aten.add.Tensor(hidden, 1)
    write(aten.view.default(hidden, [-1, 16]), aten.view.default(v, [-1, 16]))
    return [scaled(before), hidden[1:], scaled(hidden)]


def test_these_are_in_order(hook: ModuleType):
    writers = {"copy_": copy, "index_put_": lambda w, v: put(w, [rows(w.shape[0])], v), "called": write}
    programs = {name: windows_one_by_one(call) for name, call in writers.items()}
    programs |= {"returned": returned, "swapped": swapped_contents, "temporary": temporary}
    assert hook.wrong(cases(hook, programs)) == []


def test_an_operator_that_is_called_writes_a_temporary_where_it_is(hook: ModuleType):
    def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
        hidden = scaled(x)
        write(aten.view.default(hidden, [-1, 16]), aten.view.default(v, [-1, 16]))
        return [hidden]

    x, v = numbers(), numbers(50)
    compiled = hook.compile_writing(program, [x, v])
    sizes, _ = hook.allocations(lambda: compiled(x, v))
    assert sizes == [x.nbytes]


# Caches of several layers in one tensor.

LAYERS, TOKENS = 3, 4
Cached = Callable[[Tensor, Tensor, Tensor, Tensor], Sequence[Tensor]]


def stacked(k: Tensor, v: Tensor, slots: Tensor, cache: Tensor) -> Sequence[Tensor]:
    total = v
    for layer in range(LAYERS):
        put(cache[layer, 0], [slots], k)
        put(cache[layer, 1], [slots], v)
        k = k + aten.index.Tensor(cache[layer, 0], [slots])
        total = total + aten.index.Tensor(cache[layer, 1], [slots])
    return [k, total]


def stacked_custom_op(k: Tensor, v: Tensor, slots: Tensor, cache: Tensor) -> Sequence[Tensor]:
    total = v
    for layer in range(LAYERS):
        torch.ops.inductor_hook.write_slots.default(k, v, cache[layer, 0], cache[layer, 1], slots)
        k = k + aten.index.Tensor(cache[layer, 0], [slots])
        total = total + aten.index.Tensor(cache[layer, 1], [slots])
    return [k, total]


def unbind_pair(k: Tensor, v: Tensor, slots: Tensor, cache: Tensor) -> Sequence[Tensor]:
    total = v
    for layer in cache.unbind(0):
        keys, values = layer.unbind(0)
        put(keys, [slots], k)
        put(values, [slots], v)
        k = k + aten.index.Tensor(keys, [slots])
        total = total + aten.index.Tensor(values, [slots])
    return [k, total]


def sliding_slice(k: Tensor, v: Tensor, slots: Tensor, cache: Tensor) -> Sequence[Tensor]:
    total = v
    for layer in range(LAYERS):
        copy(cache[layer, 0, :TOKENS], k)
        copy(cache[layer, 1, TOKENS : 2 * TOKENS], v)
        k = k + cache[layer, 0, 1 : TOKENS + 1]
        total = total + cache[layer, 1, TOKENS - 1 : 2 * TOKENS - 1]
    return [k, total]


@pytest.mark.parametrize("program", [stacked, stacked_custom_op, unbind_pair, sliding_slice])
def test_stacked_caches_are_neither_copied_nor_wrong(hook: ModuleType, program: Cached):
    def arguments() -> list[Tensor]:
        generator = torch.Generator().manual_seed(1)
        k, v = (torch.randn(TOKENS, 2, 8, generator=generator) for _ in range(2))
        slots = torch.randperm(500, generator=generator)[:TOKENS]
        return [k, v, slots, torch.randn(LAYERS, 2, 500, 2, 8, generator=generator)]

    assert hook.wrong({program.__name__: hook.Case(program, arguments)}) == []
    compiled = hook.compile_writing(program, arguments())
    given = arguments()
    sizes, _ = hook.allocations(lambda: compiled(*given))
    assert max(sizes) <= given[0].nbytes
