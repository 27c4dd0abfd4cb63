"""What stands around a write in place: what is read in order by itself, and what only if `materialize` reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._inductor.exc import InductorError

from vllm_ir.backends.inductor.materialize import materialize

aten = torch.ops.aten

copy = aten.copy_.default
put = aten.index_put_.default


def write(window: Tensor, v: Tensor) -> None:
    """A write by an operator that Inductor only calls; the harness defines it."""
    torch.ops.inductor_hook.write.default(window, v)


# Programs take an argument that they write and one that they only read.

SHAPE = (8, 16, 16)
Program = Callable[[Tensor, Tensor], Sequence[Tensor]]
Wrap = Callable[[Tensor], Tensor]


def plain(x: Tensor) -> Tensor:
    return x


def numbers(start: int = 0) -> Tensor:
    return ((torch.arange(2048) * 37 + start) % 101).to(torch.float32).reshape(SHAPE)


def cases(hook: ModuleType, programs: Mapping[str, Program]) -> dict[str, object]:
    return {name: hook.Case(program, lambda: [numbers(), numbers(50)]) for name, program in programs.items()}


def scaled(x: Tensor) -> Tensor:
    return aten.mul.Tensor(x, 3)


def rows(count: int) -> Tensor:
    return aten.arange.default(count)


def turned() -> Tensor:
    """All eight rows once, in another order: which of several writes to one row is the last is not defined."""
    return aten.remainder.Scalar(aten.add.Tensor(rows(8), 3), 8)


# The operator.


def test_the_copy_is_dense_and_in_new_memory():
    x = numbers()
    for source in (x, x.permute(2, 0, 1), x[:, ::2, 3:9], x[0, 0].expand(4, 16), x.to(torch.float8_e4m3fn)[1:]):
        made = materialize(source)
        assert made.untyped_storage().data_ptr() != source.untyped_storage().data_ptr()
        assert made.untyped_storage().nbytes() == made.numel() * made.element_size()
        assert (made.shape, made.stride(), made.dtype) == (source.shape, source.clone().stride(), source.dtype)
        assert torch.equal(made.to(torch.float32), source.to(torch.float32))


def test_it_is_one_call_and_one_allocation_each(hook: ModuleType):
    def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
        first, second = materialize(x), materialize(x)
        copy(x, v)
        return [first, second]

    x, v = numbers(), numbers(50)
    compiled = hook.compile_writing(program, [x, v])
    sizes, calls = hook.allocations(lambda: compiled(x, v))
    assert calls.count("vllm_ir_inductor::materialize") == 2
    assert sizes == [x.nbytes] * 2


# Old contents that are used behind a write.

LAZY: dict[str, Wrap] = {
    "computed": lambda x: aten.add.Tensor(x, 1),
    "clone": lambda x: aten.clone.default(x),
    "view of a computed value": lambda x: aten.slice.Tensor(aten.add.Tensor(x, 1), 0, 2, 5),
    "small reduction": lambda x: aten.amax.default(x[:4], [0]),
    "indexed": lambda x: aten.index.Tensor(x, [rows(3)]),
    "scattered into": lambda x: aten.select_scatter.default(x, aten.select.int(x, 0, 0), 0, 2),
    "average": lambda x: aten.avg_pool2d.default(aten.unsqueeze.default(x, 0), [2, 2]),
    "largest": lambda x: aten.max_pool2d_with_indices.default(aten.unsqueeze.default(x, 0), [2, 2])[0],
    "enlarged": lambda x: aten.upsample_nearest2d.default(aten.unsqueeze.default(x, 0), [32, 32]),
}
IN_MEMORY: dict[str, Wrap] = {
    "mm": lambda x: aten.mm.default(aten.select.int(x, 0, 1), aten.select.int(x, 0, 2)),
    "bmm": lambda x: aten.bmm.default(x, x),
    "sort": lambda x: aten.sort.default(x, 2)[0],
    "cumsum": lambda x: aten.cumsum.default(x, 0),
    "cat": lambda x: aten.cat.default([x, aten.add.Tensor(x, 1)]),
    "index_put": lambda x: aten.index_put.default(x, [rows(2)], aten.slice.Tensor(x, 0, 3, 5)),
    "convolution": lambda x: aten.convolution.default(
        aten.unsqueeze.default(x, 0),
        aten.unsqueeze.default(aten.slice.Tensor(x, 1, 0, 8), 3),
        *(None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    ),
}
KERNELS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "copy_": lambda x, v: copy(aten.slice.Tensor(x, 0, 1, 7), aten.slice.Tensor(v, 0, 1, 7)),
    "index_put_": lambda x, v: put(x, [rows(8)], v),
    "scatter_": lambda x, v: aten.scatter_.src(
        x, 0, aten.expand.default(aten.view.default(turned(), [8, 1, 1]), SHAPE), v
    ),
}


def read_behind(
    read: Wrap, call: Callable[[Tensor, Tensor], object], wrap: Wrap = plain, use: Wrap = materialize
) -> Program:
    """Old contents, written over before they are used."""

    def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
        old = wrap(read(x))
        call(x, v)
        return [use(old)]

    return program


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_come_behind_lazy_values(hook: ModuleType, kernel: str):
    call = KERNELS[kernel]
    assert hook.wrong(cases(hook, {name: read_behind(read, call, use=scaled) for name, read in LAZY.items()})) == []


def test_called_operators_come_in_front_of_lazy_values(hook: ModuleType):
    behind = {name: read_behind(read, write) for name, read in LAZY.items()}
    cloned = read_behind(LAZY["computed"], write, aten.clone.default)
    late = cases(hook, {**behind, "cloned": cloned})
    assert hook.wrong(late) == list(late)


def test_called_operators_come_behind_what_is_in_memory(hook: ModuleType):
    made = {f"{name}, materialized": read_behind(read, write, materialize) for name, read in LAZY.items()}
    assert hook.wrong(cases(hook, made | {name: read_behind(read, write) for name, read in IN_MEMORY.items()})) == []


def test_returned_values_are_in_memory_unless_they_are_single_numbers(hook: ModuleType):
    def program(read: Wrap) -> Program:
        def returning(x: Tensor, v: Tensor) -> Sequence[Tensor]:
            old = read(x)
            write(x, v)
            return [old]

        return returning

    def number(x: Tensor) -> Tensor:
        return aten.add.Tensor(aten.select.int(aten.view.default(x, [-1]), 0, 5), 1)

    programs = {
        name: program(LAZY[name]) for name in ("computed", "clone", "view of a computed value", "small reduction")
    }
    programs |= {"number": program(number), "materialized": program(lambda x: materialize(number(x)))}
    assert hook.wrong(cases(hook, programs)) == ["number"]


# Sources that read what is written.


def flipped(x: Tensor) -> Tensor:
    return aten.add.Tensor(torch.ops.prims.rev.default(x, [0]), 1)


def swapped(x: Tensor) -> Tensor:
    return aten.permute.default(x, [0, 2, 1])


SOURCES: dict[str, Callable[[Tensor, Wrap], object]] = {
    "copy_, view": lambda x, wrap: copy(x[1:], wrap(x[:-1])),
    "copy_, view of a computed value": lambda x, wrap: copy(swapped(x[:, :, :8]), wrap(flipped(x))[:, :8]),
    "copy_, expansion": lambda x, wrap: copy(x, wrap(scaled(x[3:4]))),
    "copy_, cast": lambda x, wrap: copy(swapped(x), wrap(aten._to_copy.default(flipped(x), dtype=torch.float64))),
    "index_put_, view": lambda x, wrap: put(x[1:], [rows(7)], wrap(x[:-1])),
    "scatter_, computed": lambda x, wrap: aten.scatter_.src(
        x, 0, aten.expand.default(aten.view.default(aten.sub.Tensor(7, rows(8)), [8, 1, 1]), SHAPE), wrap(scaled(x))
    ),
}
CLONES_DO = ["copy_, view", "index_put_, view"]


def writing(call: Callable[[Tensor, Tensor], object]) -> Program:
    """Nothing but a write."""

    def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
        call(x, v)
        return []

    return program


def own_sources(hook: ModuleType, wrap: Wrap) -> dict[str, object]:
    """Writes of memory from itself, which are to read all of it before they write."""
    arguments = [numbers(), numbers(50)]
    return {
        name: hook.Case(
            writing(lambda x, v, call=call: call(x, wrap)),
            lambda: arguments,
            writing(lambda x, v, call=call: call(x, torch.clone)),
        )
        for name, call in SOURCES.items()
    }


def test_a_kernel_inlines_its_source(hook: ModuleType):
    assert hook.wrong(own_sources(hook, plain)) == list(SOURCES)
    assert hook.wrong(own_sources(hook, aten.clone.default)) == [name for name in SOURCES if name not in CLONES_DO]
    assert hook.wrong(own_sources(hook, materialize)) == []


INDICES: dict[str, Callable[[Tensor, Tensor, Wrap], object]] = {
    "view": lambda x, v, wrap: put(x, [wrap(x)], v),
    "computed": lambda x, v, wrap: put(x, [wrap(aten.sub.Tensor(191, x))], v),
    "cloned": lambda x, v, wrap: put(x, [aten.clone.default(wrap(aten.sub.Tensor(191, x)))], v),
    "scatter_": lambda x, v, wrap: aten.scatter_.src(x, 0, wrap(aten.sub.Tensor(191, x)), v),
}


def own_indices(hook: ModuleType, wrap: Wrap) -> dict[str, object]:
    generator = torch.Generator().manual_seed(1)
    arguments = [torch.randperm(192, generator=generator) for _ in range(2)]

    return {
        name: hook.Case(
            writing(lambda x, v, call=call: call(x, v, wrap)),
            lambda: arguments,
            writing(lambda x, v, call=call: call(x, v, torch.clone)),
        )
        for name, call in INDICES.items()
    }


def test_a_kernel_inlines_its_indices(hook: ModuleType):
    assert hook.wrong(own_indices(hook, plain)) == list(INDICES)
    assert hook.wrong(own_indices(hook, materialize)) == []


IN_ORDER: dict[str, Callable[[Tensor, Tensor], object]] = {
    "elementwise": lambda x, v: copy(x, aten.add.Tensor(scaled(x), v)),
    "elementwise, window": lambda x, v: copy(swapped(x[1:]), scaled(swapped(x[1:]))),
    "elementwise, view": lambda x, v: copy(x[1:], scaled(x)[1:]),
    "elementwise, cast": lambda x, v: copy(x, aten._to_copy.default(scaled(x), dtype=torch.bfloat16)),
    "computed, flipped": lambda x, v: copy(x, flipped(x)),
    "computed, swapped": lambda x, v: copy(swapped(x), scaled(x)),
    "disjoint view": lambda x, v: copy(x[0], x[1]),
    "disjoint index": lambda x, v: put(x[:4], [aten._to_copy.default(x[7, 0, :4] * 0, dtype=torch.int64)], x[4]),
    "index_put_, computed": lambda x, v: put(x, [aten.sub.Tensor(7, rows(8))], scaled(x)),
    "index_put_, view of a computed value": lambda x, v: put(x, [rows(7)], flipped(x)[1:]),
    "index_put_, expansion": lambda x, v: put(x, [aten.sub.Tensor(7, rows(8))], scaled(x[5])),
}


def test_other_sources_are_read_in_order(hook: ModuleType):
    assert hook.wrong(cases(hook, {name: writing(call) for name, call in IN_ORDER.items()})) == []


def test_reductions_that_are_written_over_their_operand_may_not_compile(hook: ModuleType):
    def program(wrap: Wrap) -> Program:
        return writing(lambda x, v: copy(x, wrap(aten._softmax.default(x, 2, False))))

    with pytest.raises(InductorError):
        hook.compile_writing(program(plain), [numbers(), numbers(50)])
    hook.compile_writing(program(materialize), [numbers(), numbers(50)])


# Memory that becomes part of other memory, and functional scatters that are left.


def joined(wrap: Wrap) -> Program:
    def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
        temporary = scaled(x)
        both = aten.cat.default([wrap(temporary), aten.add.Tensor(v, 1)])
        write(temporary, v)
        return [both]

    return program


def test_operands_of_cat_become_parts_of_it(hook: ModuleType):
    programs = {"plain": joined(plain), "cloned": joined(aten.clone.default), "materialized": joined(materialize)}
    assert hook.wrong(cases(hook, programs)) == ["plain"]


def written_again(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    new = aten.index_put.default(x, [rows(2)], v[:2])
    copy(x, new)
    copy(x[3], v[0])
    return [scaled(new)]


def overlapping(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    new = aten.index_put.default(x, [aten.sub.Tensor(7, rows(7))], x[:7])
    copy(x, new)
    return [scaled(new)]


def overlapping_temporary(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    temporary = scaled(x)
    return [scaled(aten.index_put.default(temporary, [aten.sub.Tensor(7, rows(7))], temporary[:7]))]


def beside(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    new = aten.index_put.default(x, [rows(2)], x[4:6])
    part = aten.slice_scatter.default(x, v[:2], 0, 1, 3)
    copy(x[3], v[0])
    put(x, [rows(3)], v[3:6])
    return [scaled(new), scaled(part), scaled(x)]


def test_functional_scatters_that_are_copied_back_are_put_in_place_by_inductor(hook: ModuleType):
    programs = {"written again": written_again, "overlapping": overlapping, "temporary": overlapping_temporary}
    assert hook.wrong(cases(hook, programs | {"beside": beside})) == list(programs)
