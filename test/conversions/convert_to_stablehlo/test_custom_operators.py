"""Custom operators with a definition in Python, through `torch.compile(backend="vllm_ir_xla")` against eager mode.

Everything that a caller can see is compared: results, the memory of arguments with what is around it, aliases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.library import Library, custom_op

from vllm_ir.tools.xla import vllm_ir_xla

Make = Callable[[], Sequence[object]]


@custom_op("xla_custom::split_sign", mutates_args=("positive", "negative"))
def split_sign(x: Tensor, positive: Tensor, negative: Tensor) -> None:
    positive.copy_(x.clamp(min=0))
    negative.copy_(x.clamp(max=0))


@custom_op("xla_custom::store", mutates_args=("cache",))
def store(x: Tensor, cache: Tensor) -> None:
    cache[: x.shape[0]] = x.to(cache.dtype)


@custom_op("xla_custom::backwards", mutates_args=("target",))
def backwards(source: Tensor, target: Tensor) -> None:
    for i in range(len(source)):
        target[len(source) - 1 - i] = source[i] * 1


@custom_op("xla_custom::accumulate", mutates_args=("total", "count"))
def accumulate(x: Tensor, total: Tensor, count: Tensor | None = None, scale: float = 2.0) -> Tensor:
    total.add_(x, alpha=scale)
    if count is not None:
        count.add_(1)
    return total * 0.5


@accumulate.register_fake
def _(x: Tensor, total: Tensor, count: Tensor | None = None, scale: float = 2.0) -> Tensor:
    return torch.empty_like(total)


@custom_op("xla_custom::raw_prefix", mutates_args=())
def raw_prefix(x: Tensor, n: int) -> Tensor:
    return x.as_strided((n,), (1,), x.storage_offset()).clone()


@raw_prefix.register_fake
def _(x: Tensor, n: int) -> Tensor:
    return x.new_empty(n)


@custom_op("xla_custom::pieces", mutates_args=())
def pieces(x: Tensor, sizes: list[int]) -> list[Tensor]:
    return [piece + 1 for piece in x.split(sizes)]


@pieces.register_fake
def _(x: Tensor, sizes: list[int]) -> list[Tensor]:
    return [torch.empty_like(piece) for piece in x.split(sizes)]


@custom_op("xla_custom::nested", mutates_args=("x",))
def nested(x: Tensor) -> None:
    store(x[:1] * 3, x)
    backwards(x.clone(), x)


@custom_op("xla_custom::per_device", mutates_args=())
def per_device(x: Tensor) -> Tensor:
    return x - 100


@per_device.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x + 1


@per_device.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


_LIBRARY = Library("xla_custom_lib", "DEF")
_LIBRARY.define("stamp(Tensor(a!)[] outs, float v) -> ()")
_LIBRARY.define("bump_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
_LIBRARY.define("both(Tensor(a!) x, Tensor y) -> (Tensor(a!), Tensor)")
_LIBRARY.define("some(Tensor(a!)? x, Tensor[] ys, *, int n=3) -> Tensor")
_LIBRARY.define("elsewhere(Tensor x) -> Tensor")


def _stamp(outs: list[Tensor], v: float) -> None:
    for k, out in enumerate(outs):
        out.mul_(v).add_(k)


def _both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    old = x.clone()
    return x.mul_(y), old


def _some(x: Tensor | None, ys: list[Tensor], *, n: int = 3) -> Tensor:
    total = sum(ys) * n
    if x is not None:
        x.copy_(total)
    return total


_LIBRARY.impl("stamp", _stamp, "CompositeExplicitAutograd")
_LIBRARY.impl("bump_", lambda x, y: x.add_(y), "CPU")
_LIBRARY.impl("both", _both, "CPU")
_LIBRARY.impl("some", _some, "CompositeExplicitAutograd")
_LIBRARY.impl("elsewhere", lambda x: x + 1, "CUDA")
_LIBRARY.impl("elsewhere", torch.ops.aten.relu.default, "Meta")
torch.library.register_fake("xla_custom_lib::stamp", lambda outs, v: None)
torch.library.register_fake("xla_custom_lib::bump_", lambda x, y: x)
torch.library.register_fake("xla_custom_lib::both", lambda x, y: (x, torch.empty_like(x)))
torch.library.register_fake("xla_custom_lib::some", lambda x, ys, *, n=3: torch.empty_like(ys[0]))
lib = torch.ops.xla_custom_lib


def _values(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    count = int(np.prod(shape))
    return ((torch.arange(count) * 5) % 13 - 6).to(dtype).reshape(shape)


def two_new_buffers(x: Tensor):
    positive, negative = torch.empty_like(x), torch.empty_like(x)
    split_sign(x, positive, negative)
    return positive, negative


def two_views_of_one_cache(cache: Tensor, x: Tensor):
    split_sign(x, cache[0, :, :3], cache[2, :, 1:])
    return cache.sum()


def bytes_of_a_cache(raw: Tensor, x: Tensor):
    cache = raw.view(torch.float8_e4m3fn)
    store(x, cache[1:])
    store(x.abs(), raw.view(torch.int8)[:, ::2].t())
    return cache.float()


def other_order(x: Tensor):
    backwards(x.clone(), x)
    return x + 0.5


def same_tensor_twice(x: Tensor):
    accumulate(x, x, None, 10.0)
    return x.sum()


def optional_and_default(x: Tensor, total: Tensor, count: Tensor):
    first = accumulate(x, total)
    second = accumulate(x, total, count)
    return first, second, accumulate(x, total, count=count[:1], scale=0.25)


def list_of_an_argument_twice(a: Tensor, b: Tensor, x: Tensor):
    t = x * 1.0
    lib.stamp([a, t, b.t()], 2.0)
    return a + t


def returns_what_it_writes(x: Tensor, y: Tensor):
    again = lib.bump_(x[1:], y)
    mine, old = lib.both(x, x + 1)
    return again, mine, old


def optional_written(x: Tensor, ys: Tensor):
    return lib.some(None, [ys, ys]), lib.some(x, [ys[0], x], n=2)


def list_results(x: Tensor):
    a, b = pieces(x, [1, 3])
    return a, b * 2


def layout_matters(x: Tensor):
    return raw_prefix(x[:, 1:4].contiguous(), 6), raw_prefix(x.t(), 6)


def inside_of_each_other(x: Tensor):
    nested(x)
    return x * 2


def own_kernel(x: Tensor):
    return per_device(x)


def in_both_branches(x: Tensor, y: Tensor):
    def one(x: Tensor, y: Tensor):
        t = x.clone()
        store(y, t)
        return t

    def other(x: Tensor, y: Tensor):
        return per_device(x) + y[0]

    return torch.cond(x.sum() > 0, one, other, (x, y))


def reader_between(x: Tensor):
    t = torch.full((4,), 2.0)
    store(x, t)
    u = t * t
    store(-x, t[2:])
    return u, t


CASES: dict[Callable[..., object], Make] = {
    two_new_buffers: lambda: [_values(5)],
    two_views_of_one_cache: lambda: [_values(3, 3, 4), _values(3, 3)],
    bytes_of_a_cache: lambda: [torch.zeros(4, 4, dtype=torch.uint8), _values(2, 4)],
    other_order: lambda: [_values(7)],
    same_tensor_twice: lambda: [_values(4)],
    optional_and_default: lambda: [_values(3), _values(3), torch.zeros(3)],
    list_of_an_argument_twice: lambda: [_values(3, 3), _values(3, 3), _values(3, 3)],
    returns_what_it_writes: lambda: [_values(4, 2), _values(3, 2)],
    optional_written: lambda: [_values(4), _values(2, 4)],
    list_results: lambda: [_values(4, 2)],
    layout_matters: lambda: [_values(3, 6)],
    inside_of_each_other: lambda: [_values(5, 2)],
    own_kernel: lambda: [_values(5)],
    in_both_branches: lambda: [_values(4), _values(2)],
    reader_between: lambda: [_values(2)],
}


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


@pytest.mark.parametrize("program", CASES, ids=lambda program: program.__name__)
def test_programs_are_eager_ones(program: Callable[..., object], programs) -> None:
    make = CASES[program]
    compiled = torch.compile(program, backend=vllm_ir_xla, fullgraph=True)
    programs.observe(program, make()).compare(programs.observe(compiled, make()), "through XLA")


def rejection(program: Callable[..., object], *inputs: object) -> str:
    """The one line with which a program is refused, without its place, which must be one in this file."""
    with pytest.raises(Exception, match="@xla_custom") as caught:
        torch.compile(program, backend=vllm_ir_xla, fullgraph=True)(*inputs)
    (line,) = [line for line in str(caught.value).splitlines() if "@xla_custom" in line]
    place, found, message = line.partition(": @xla_custom")
    assert re.search(r"test_custom_operators\.py:\d+$", place), line
    return found[2:] + message


def declared(name: str, schema: str, body: Callable[..., object], fake: Callable[..., object]) -> Callable[..., object]:
    """A custom operator that does not keep to what it declares, which PyTorch does not see by itself."""
    _LIBRARY.define(f"{name}{schema}")
    _LIBRARY.impl(name, body, "CompositeExplicitAutograd")
    torch.library.register_fake(f"xla_custom_lib::{name}", fake)
    return getattr(lib, name)


def _through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


def _through_a_pointer(x: Tensor) -> Tensor:
    return x + x.data_ptr() % 2


def _by_element(x: Tensor) -> Tensor:
    return x + 1 if x[0, 0].item() > 0 else x - 1


def _random(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def _past_its_elements(x: Tensor) -> Tensor:
    return x.as_strided((2, 4), (5, 1)).clone()


REFUSED: dict[Callable[[Tensor], Tensor], str] = {
    _through_numpy: "cannot be traced on tensors without data: .*numpy",
    _through_a_pointer: "cannot be traced on tensors without data: .*data pointer",
    _by_element: "cannot be traced on tensors without data: Could not guard on data-dependent expression",
    _random: "it is defined by @aten.rand_like.default, which cannot be converted: it draws random numbers",
    _past_its_elements: "it is defined by @aten.as_strided.default, .* which has gaps or overlaps",
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_definitions_that_are_no_function_of_values(body: Callable[[Tensor], Tensor]) -> None:
    operator = declared(f"f{body.__name__}", "(Tensor x) -> Tensor", body, lambda x: x.new_empty(2, 4))
    assert re.search(REFUSED[body], rejection(lambda x: operator(x[:, :4]), _values(2, 6)))


def test_definitions_that_do_not_keep_to_their_schema() -> None:
    writes = declared("writes", "(Tensor x, Tensor y) -> Tensor", lambda x, y: y.add_(x) * 2, lambda x, y: x * 1)
    assert re.search(r"it writes argument y, .*mutates_args", rejection(lambda x: writes(x, x + 1), _values(3)))
    returns = declared("returns", "(Tensor x) -> Tensor", lambda x: x.view(-1), torch.empty_like)
    assert re.search("it returns memory of an operand .* return a clone", rejection(lambda x: returns(x), _values(3)))
    twice = declared(
        "twice", "(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 1,) * 2, lambda x: (x.clone(), x.clone())
    )
    assert re.search("it returns memory of an operand or of another", rejection(lambda x: twice(x), _values(3)))


@pytest.mark.parametrize(
    ("name", "fake", "stated"),
    [
        ("dtype", lambda x: x.new_empty(2, 3, dtype=torch.float64), "tensor<2x3xf64>"),
        ("shape", lambda x: x.new_empty(3, 2), "tensor<3x2xf32>"),
        ("strides", lambda x: x.new_empty(3, 2).t(), "tensor<2x3xf32, .*>"),
    ],
)
def test_fake_implementations_that_state_another_result(name: str, fake: Callable[..., object], stated: str) -> None:
    operator = declared(f"fake_{name}", "(Tensor x) -> Tensor", lambda x: x * 2, fake)
    message = rejection(lambda x: operator(x), _values(2, 3))
    assert re.search(f"result 0 is tensor<2x3xf32> by what it does, {stated} by its fake", message)


def test_operators_that_nothing_is_known_of() -> None:
    # A kernel for another device, of which nobody says that it computes the same here.
    assert "without a definition in Python to look into" in rejection(lambda x: lib.elsewhere(x), _values(3))
    log = declared("log", "(Tensor x) -> ()", lambda x: None, lambda x: None)

    def logs(x: Tensor) -> Tensor:
        log(x)
        return x * 2

    assert "it neither returns nor writes anything by its schema" in rejection(logs, _values(3))


def test_operands_that_overlap() -> None:
    def program(x: Tensor) -> Tensor:
        backwards(x[1:], x[:-1])
        return x

    assert "overlaps the operand" in rejection(program, _values(4))
