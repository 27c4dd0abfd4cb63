"""Every write in place through every kind of window, as Inductor lowers it, against eager mode and the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._inductor.exc import InductorError

from vllm_ir.backends.inductor.faithful_forms import KERNELS, REINTERPRETATIONS, WINDOWS, is_faithful
from vllm_ir.backends.inductor.torch_internals import has_own_code

aten = torch.ops.aten

custom = torch.ops.inductor_hook  # defined by the harness


# Windows.

SHAPE = (4, 6, 8)
View = Callable[[Tensor], Tensor]
FLAT = ("view", "view, slice", "select, view", "slice, view")  # need the root's elements in a row
VIEWS: dict[str, View] = {
    "whole": lambda x: x,
    "select": lambda x: aten.select.int(x, 0, 1),
    "select last": lambda x: aten.select.int(x, 2, -2),
    "slice": lambda x: aten.slice.Tensor(x, 0, 1, 3),
    "slice, step": lambda x: aten.slice.Tensor(x, 2, 1, 8, 2),
    "select, select": lambda x: aten.select.int(aten.select.int(x, 0, 1), 0, 2),
    "select, slice": lambda x: aten.slice.Tensor(aten.select.int(x, 0, 1), 1, 2, 7, 2),
    "slices": lambda x: aten.slice.Tensor(aten.slice.Tensor(aten.slice.Tensor(x, 0, 1, 4), 1, 0, 6, 2), 2, 3, 5),
    "permute": lambda x: aten.permute.default(x, [2, 0, 1]),
    "permute, slice": lambda x: aten.slice.Tensor(aten.permute.default(x, [2, 0, 1]), 1, 1, 3),
    "select, permute, select": lambda x: aten.select.int(aten.permute.default(x[1], [1, 0]), 0, 3),
    "view": lambda x: aten.view.default(x, [4, 2, 3, 8]),
    "view, slice": lambda x: aten.slice.Tensor(aten.view.default(x, [24, 8]), 0, 5, 11),
    "select, view": lambda x: aten.view.default(aten.select.int(x, 0, 2), [-1]),
    "slice, view": lambda x: aten.view.default(aten.slice.Tensor(x, 2, 1, 4), [24, 3]),
    "permute, view": lambda x: aten.view.default(aten.permute.default(x, [1, 0, 2]), [6, 4, 2, 4]),
    "unsqueeze": lambda x: aten.unsqueeze.default(x, 1),
    "squeeze": lambda x: aten.squeeze.default(aten.slice.Tensor(x, 0, 1, 2)),
    "squeeze.dim": lambda x: aten.squeeze.dim(aten.slice.Tensor(x, 0, 1, 2), 0),
    "squeeze.dims": lambda x: aten.squeeze.dims(aten.slice.Tensor(x, 0, 1, 2), [0]),
    "expand, select": lambda x: aten.select.int(aten.expand.default(aten.unsqueeze.default(x, 0), [3, *SHAPE]), 0, 1),
    "diagonal": lambda x: aten.diagonal.default(x, 0, 0, 1),
    "select, diagonal": lambda x: aten.diagonal.default(aten.select.int(x, 0, 1), 1),
    "as_strided": lambda x: aten.as_strided.default(x, [3, 4], [16, 2], x.storage_offset() + 5),
    "select, as_strided": lambda x: aten.as_strided.default(aten.select.int(x, 0, 1), [3, 4], [16, 2]),
    "alias": lambda x: aten.alias.default(x),
    "split": lambda x: aten.split.Tensor(x, 2, 0)[1],
    "split_with_sizes": lambda x: aten.split_with_sizes.default(x, [3, 2, 3], 2)[1],
    "unbind": lambda x: aten.unbind.int(x, 1)[2],
    "unfold": lambda x: aten.unfold.default(x, 2, 3, 4),
}
ROOTS: dict[str, Callable[[torch.dtype], Tensor]] = {
    "contiguous": lambda dtype: elements(SHAPE, dtype),
    "permuted": lambda dtype: elements((8, 4, 6), dtype).permute(1, 2, 0),
    "gaps": lambda dtype: elements((5, 7, 20), dtype)[1:, 1:, 3:19:2],
}
BITS = (torch.float8_e4m3fn, torch.float8_e5m2)


def elements(shape: Sequence[int], dtype: torch.dtype, start: int = 3) -> Tensor:
    """A tensor of different small numbers; of booleans in an irregular order."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) * 7 + start) % 97
    return (numbers % 3 == 0 if dtype == torch.bool else numbers.to(torch.float32).to(dtype)).reshape(tuple(shape))


def derived(x: Tensor) -> Tensor:
    """What an element type allows to compute from a tensor, so that other elements give another result."""
    if x.dtype in BITS:
        return aten.bitwise_not.default(aten.view.dtype(x, torch.uint8))
    return aten.bitwise_not.default(x) if x.dtype in (torch.bool, torch.uint8) else aten.mul.Tensor(x, 3)


# Writes: of a window, its arguments beside the window, and the call.

Extras = Callable[[Tensor], list[Tensor]]


def rows(window: Tensor) -> int:
    return min(3, window.shape[0])


def values(window: Tensor) -> list[Tensor]:
    return [elements(window.shape, window.dtype, 50)]


def row_values(window: Tensor) -> list[Tensor]:
    return [torch.arange(rows(window)).flip(0), elements((rows(window), *window.shape[1:]), window.dtype, 50)]


def repeated(window: Tensor) -> list[Tensor]:
    index = torch.tensor([1, 0, 1, 1]) % window.shape[0]
    return [index, elements((4, *window.shape[1:]), window.dtype, 50)]


def masked(window: Tensor) -> list[Tensor]:
    mask = elements(window.shape, torch.bool)
    return [mask, elements((int(mask.sum()),), window.dtype, 50)]


def positions(window: Tensor) -> list[Tensor]:
    return [torch.zeros(window.shape, dtype=torch.int64), *values(window)]


WRITES: dict[str, tuple[Extras, Callable[..., object]]] = {
    "copy_": (values, aten.copy_.default),
    "copy_, broadcast": (lambda w: [elements(w.shape[-1:], w.dtype, 50)], aten.copy_.default),
    "copy_, cast": (lambda w: [elements(w.shape, torch.float64, 50)], aten.copy_.default),
    "copy_, computed": (values, lambda w, v: aten.copy_.default(w, aten.add.Tensor(v, v))),
    "index_put_": (row_values, lambda w, i, v: aten.index_put_.default(w, [i], v)),
    "index_put_, last": (
        lambda w: [torch.tensor([0]), elements((*w.shape[:-1], 1), w.dtype, 50)],
        lambda w, i, v: aten.index_put_.default(w, [*[None] * (w.dim() - 1), i], v),
    ),
    "index_put_, accumulate": (repeated, lambda w, i, v: aten.index_put_.default(w, [i], v, True)),
    "index_put_, mask": (masked, lambda w, m, v: aten.index_put_.default(w, [m], v)),
    "index_put_, mask, number": (masked, lambda w, m, v: aten.index_put_.default(w, [m], v[:1])),
    "scatter_.src": (positions, lambda w, i, v: aten.scatter_.src(w, 0, i[:1], v)),
    "scatter_.value": (positions, lambda w, i, v: aten.scatter_.value(w, 0, i[:1], 1)),
    "scatter_.reduce": (positions, lambda w, i, v: aten.scatter_.reduce(w, 0, i, v, reduce="add")),
    "scatter_.value_reduce": (positions, lambda w, i, v: aten.scatter_.value_reduce(w, 0, i, 2, reduce="add")),
    "scatter_add_": (positions, lambda w, i, v: aten.scatter_add_.default(w, 0, i, v)),
    "scatter_reduce_": (positions, lambda w, i, v: aten.scatter_reduce_.two(w, 0, i, v, "amax")),
    "custom": (values, lambda w, v: custom.write.default(w, v)),
    "custom, list": (values, lambda w, v: custom.write_list.default([w], v)),
    "custom, two": (lambda w: [*values(w), *values(w)], lambda w, v, o: custom.write_two.default(v, w, o)),
}
ALL_WINDOWS = ("copy_", "index_put_", "custom")  # those that are tested with all windows by default


def make(
    hook: ModuleType, write: str, view: str, root: str = "contiguous", dtype: torch.dtype = torch.float32
) -> object:
    """The case of one write of one window of an argument; where the window is everything, it is read again."""
    extras, call = WRITES[write]
    beside = extras(VIEWS[view](ROOTS[root](dtype)))

    def program(x: Tensor, *beside: Tensor) -> Sequence[Tensor]:
        call(VIEWS[view](x), *beside)
        return [derived(x)] if view == "whole" else []

    return hook.Case(program, lambda: [ROOTS[root](dtype), *beside])


def roots() -> Iterator[tuple[str, str]]:
    """All windows, each with a root that it can be taken of; the kinds of roots take turns."""
    for index, view in enumerate(VIEWS):
        yield view, "contiguous" if view in FLAT else list(ROOTS)[index % len(ROOTS)]


def claimed(hook: ModuleType, case: object, **keywords: bool) -> bool:
    """Whether the table has all writes of a program."""
    forms = list(hook.forms(case, **keywords))
    assert forms
    return all(is_faithful(f.target, f.views, temporary=f.temporary, dtype=f.dtype) for f in forms)


def check(hook: ModuleType, cases: Mapping[str, object], **keywords: bool) -> None:
    """All cases are right, and all of their writes are in the table."""
    assert hook.wrong(cases, **keywords) == []
    reshapes = keywords.get("reshapes", False)
    assert [name for name, case in cases.items() if not claimed(hook, case, reshapes=reshapes)] == []


@pytest.mark.parametrize(("write", "reshapes"), [("copy_", False), ("index_put_", True), ("custom", True)])
def test_a_write_through_every_kind_of_window(hook: ModuleType, write: str, reshapes: bool):
    check(hook, {view: make(hook, write, view, root) for view, root in roots()}, reshapes=reshapes)


def other_writes(hook: ModuleType) -> dict[str, object]:
    writes = [write for write in WRITES if write not in ALL_WINDOWS]
    return {f"{write}, {view}": make(hook, write, view) for write in writes for view in ("whole", "permute, slice")}


def test_every_write(hook: ModuleType):
    check(hook, other_writes(hook))


def test_every_element_type(hook: ModuleType):
    windows = {"copy_": "select, slice", "index_put_": "permute, slice"}
    dtypes = (torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn)
    cases = {
        f"{write}, {dtype}": make(hook, write, windows[write], dtype=dtype) for write in windows for dtype in dtypes
    }
    check(hook, {**cases, "custom": make(hook, "custom", "whole", dtype=torch.float8_e5m2)})


# Other element types than the memory's.


def reinterpreted(hook: ModuleType) -> dict[str, object]:
    """Writes of windows of another element type, by an operator that Inductor calls."""

    def case(view: View, dtype: torch.dtype = torch.float32) -> object:
        def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
            custom.write(view(x), v)
            return [derived(x)] if dtype == torch.float32 else []

        x = elements(SHAPE, torch.float32).to(dtype)
        return hook.Case(program, lambda: [x, *values(view(x))])

    return {
        "same width": case(lambda x: aten.view.dtype(x, torch.int32)),
        "narrower": case(lambda x: aten.view.dtype(aten.select.int(x, 0, 1), torch.uint8)),
        "wider": case(lambda x: aten.slice.Tensor(aten.view.dtype(x, torch.int64), 2, 1, 3)),
        "complex": case(lambda x: aten.view_as_complex.default(aten.view.default(x, [4, 6, 4, 2]))),
        "real": case(lambda x: aten.select.int(aten.view_as_real.default(x), 3, 1), torch.complex64),
    }


def test_called_operators_write_reinterpreted_arguments(hook: ModuleType):
    check(hook, reinterpreted(hook))


# Memory of Inductor's own.

TEMPORARIES: dict[str, View] = {
    "computed": lambda x: aten.mul.Tensor(x, 2),
    "permuted": lambda x: aten.permute.default(aten.mul.Tensor(aten.permute.default(x, [2, 0, 1]), 2), [1, 2, 0]),
    "reduced": lambda x: aten.sum.dim_IntList(aten.unsqueeze.default(x, 0), [0]),
    "called": lambda x: aten.sort.default(x, 2)[0],
}


def test_called_operators_write_temporaries(hook: ModuleType):
    def case(memory: str, view: str) -> object:
        def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
            temporary = TEMPORARIES[memory](x)
            custom.write(VIEWS[view](temporary), v)
            return [derived(temporary)]

        x = elements(SHAPE, torch.float32)
        return hook.Case(program, lambda: [x, *values(VIEWS[view](x))])

    windows = zip(TEMPORARIES, ("whole", "view, slice", "diagonal", "permute, slice"), strict=True)
    check(hook, {f"{memory}, {view}": case(memory, view) for memory, view in windows})


# What has to stay out of the table.


def read_before(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    old = aten.add.Tensor(aten.view_as_real.default(x), 1)
    aten.copy_.default(x, v)
    return [aten.mul.Tensor(old, 3)]


def written_temporary(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    temporary = TEMPORARIES["called"](x)
    part = aten.mul.Tensor(temporary[1:3], 2)
    aten.copy_.default(temporary, v)
    return [aten.add.Tensor(part, 1)]


def temporary_taken_for_an_argument(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    temporary = TEMPORARIES["called"](x)
    aten.copy_.default(temporary, v)
    custom.write(aten.select.int(temporary, 0, 1), aten.select.int(x, 0, 0))
    return [derived(temporary)]


def reinterpreted_temporary(x: Tensor, v: Tensor) -> Sequence[Tensor]:
    temporary = TEMPORARIES["computed"](x)
    custom.write(aten.view.dtype(temporary, torch.uint8), aten.view.dtype(v, torch.uint8))
    return [derived(temporary)]


UNFAITHFUL: dict[str, tuple[torch.dtype, Callable[..., object]]] = {
    "fill_, bool": (torch.bool, lambda x, v: aten.fill_.Scalar(x, 3)),
    "fill_, int": (torch.int64, lambda x, v: aten.fill_.Scalar(x, 3.7)),
    "exp_": (torch.float32, lambda x, v: aten.exp_.default(x)),
    "clamp_": (torch.float32, lambda x, v: aten.clamp_.default(x, 10, 20)),
    "masked_scatter_": (torch.float32, lambda x, v: aten.masked_scatter_.default(x, aten.gt.Scalar(v, 20), v)),
    "_neg_view": (torch.float32, lambda x, v: aten.copy_.default(aten._neg_view.default(x), v)),
    "narrower": (
        torch.float32,
        lambda x, v: aten.copy_.default(aten.view.dtype(x, torch.int16), aten.view.dtype(v, torch.int16)),
    ),
    "view_as_real": (
        torch.complex64,
        lambda x, v: aten.copy_.default(aten.view_as_real.default(x), aten.view_as_real.default(v)),
    ),
    "complex": (torch.complex64, read_before),
    "temporary": (torch.float32, written_temporary),
    "temporary taken for an argument": (torch.float32, temporary_taken_for_an_argument),
    "reinterpreted temporary": (torch.float32, reinterpreted_temporary),
}
REFUSED: dict[str, Callable[..., object]] = {
    "index_copy_": lambda x, v: aten.index_copy_.default(x, 0, aten.arange.default(4), v),
    "masked_fill_": lambda x, v: aten.masked_fill_.Scalar(x, aten.gt.Scalar(v, 20), 1.0),
    "zero_": lambda x, v: aten.zero_.default(x),
    "returned": lambda x, v: custom.write_.default(x, v),
    "returned, out": lambda x, v: custom.write_out.default(v, out=x),
}


def outside(hook: ModuleType, call: Callable[..., object], dtype: torch.dtype = torch.float32) -> object:
    """The case of a write that is not to be in the table, after which the argument is read unless the call does."""

    def program(x: Tensor, v: Tensor) -> Sequence[Tensor]:
        results = call(x, v)
        return results if isinstance(results, list) else [derived(x)]

    x = elements(SHAPE, torch.float32).to(dtype)
    return hook.Case(program, lambda: [x, *values(x)])


def test_unfaithful_writes_are_not_in_the_table(hook: ModuleType):
    cases = {name: outside(hook, call, dtype) for name, (dtype, call) in UNFAITHFUL.items()}
    assert [name for name, case in cases.items() if claimed(hook, case)] == []
    assert hook.wrong(cases) == list(cases)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_writes_are_not_in_the_table(hook: ModuleType, name: str):
    case = outside(hook, REFUSED[name])
    assert not claimed(hook, case)
    with pytest.raises(InductorError):
        hook.wrong({name: case})


@pytest.mark.parametrize("view", [aten.t.default, aten.transpose.int, aten._reshape_alias.default, aten._conj.default])
def test_views_without_a_lowering_are_not_in_the_table(hook: ModuleType, view: torch._ops.OpOverload):
    assert not has_own_code(view)
    assert not is_faithful(aten.copy_.default, [view])
    assert not is_faithful(custom.write.default, [view])


def test_the_whole_table_is_tested(hook: ModuleType):
    windows = [make(hook, "copy_", view, root) for view, root in roots()]
    forms = [
        form
        for reshapes in (False, True)
        for case in (*windows, *other_writes(hook).values(), *reinterpreted(hook).values())
        for form in hook.forms(case, reshapes=reshapes)
    ]
    assert {form.target for form in forms if form.target.namespace == "aten"} == KERNELS
    assert {view for form in forms for view in form.views} == WINDOWS | REINTERPRETATIONS


# Symbolic sizes, and the long form.


def test_symbolic_sizes(hook: ModuleType):
    windows = {
        "copy_": ("slices", "diagonal"),
        "index_put_": ("permute, slice", "unbind"),
        "custom": ("whole", "slices"),
    }
    cases = {f"{write}, {view}": make(hook, write, view) for write, views in windows.items() for view in views}
    check(hook, cases, dynamic=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("root", "dtype"),
    [
        ("contiguous", torch.float32),
        ("gaps", torch.float32),
        ("permuted", torch.bfloat16),
        ("gaps", torch.int64),
        ("permuted", torch.bool),
        ("contiguous", torch.float8_e4m3fn),
    ],
)
@pytest.mark.parametrize("write", WRITES)
def test_every_combination(hook: ModuleType, write: str, root: str, dtype: torch.dtype):
    cases = {view: make(hook, write, view, root, dtype) for view in VIEWS if root == "contiguous" or view not in FLAT}
    try:
        for case in cases.values():
            case.program(*case.arguments())
    except (NotImplementedError, RuntimeError) as error:
        pytest.skip(f"not in eager mode: {error}")
    assert hook.wrong(cases) == []
