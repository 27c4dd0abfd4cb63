"""Custom operators that write their arguments, however the arguments are passed."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

Check = Callable[..., None]
DEFINITIONS = {
    "positional": "(Tensor(a!) x, Tensor y) -> ()",
    "second_only": "(Tensor x, Tensor(a!) y) -> ()",
    "keyword": "(Tensor y, *, Tensor(a!) x, float by=2.0) -> ()",
    "several": "(Tensor(a!) x, Tensor y, Tensor(b!) z) -> ()",
    "with_result": "(Tensor(a!) x, Tensor y) -> Tensor",
    "with_results": "(Tensor(a!) x, Tensor y) -> (Tensor, Tensor)",
    "list": "(Tensor(a!)[] xs, Tensor y) -> ()",
    "list_and_one": "(Tensor(a!)[] xs, Tensor(b!) x, Tensor[] ys) -> Tensor",
    "optional": "(Tensor x, Tensor(a!)? cache=None, Tensor? scale=None) -> Tensor",
    "optional_list": "(Tensor x, Tensor?[] ys, Tensor(a!) out) -> ()",
    "alias": "(Tensor(a!) x, Tensor y) -> Tensor(a!)",
    "alias_and_new": "(Tensor(a!) x, Tensor y) -> (Tensor(a!), Tensor)",
    "numbers": "(Tensor(a!) x, int n, float f, bool b, str s, int[] shape, ScalarType? dtype=None) -> ()",
    "integer_result": "(Tensor(a!) x) -> int",
    "strided": "(Tensor(a!) x, Tensor y) -> Tensor",
}


def _positional(x: Tensor, y: Tensor) -> None:
    x.mul_(2).add_(y)


def _second_only(x: Tensor, y: Tensor) -> None:
    y.copy_(x * 3)


def _keyword(y: Tensor, *, x: Tensor, by: float = 2.0) -> None:
    x.mul_(by).sub_(y)


def _several(x: Tensor, y: Tensor, z: Tensor) -> None:
    x.add_(y)
    z.add_(x)


def _with_result(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x * 2


def _with_results(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(y)
    return x * 2, y.sum()


def _list(xs: list[Tensor], y: Tensor) -> None:
    for number, x in enumerate(xs):
        x.add_(y * number)


def _list_and_one(xs: list[Tensor], x: Tensor, ys: list[Tensor]) -> Tensor:
    for a, b in zip(xs, ys, strict=True):
        a.add_(b)
        x.add_(a)
    return x.clone()


def _optional(x: Tensor, cache: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
    result = x + 1 if scale is None else x * scale
    if cache is not None:
        cache.add_(result)
    return result


def _optional_list(x: Tensor, ys: list[Tensor | None], out: Tensor) -> None:
    out.copy_(x + sum(y for y in ys if y is not None))


def _alias(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(y)


def _alias_and_new(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.add_(y), y + 1


def _numbers(x: Tensor, n: int, f: float, b: bool, s: str, shape: list[int], dtype: torch.dtype | None = None) -> None:
    x.add_(n * f + (1 if b else 0) + len(s) + sum(shape)).add_(torch.ones(1, dtype=dtype or torch.float32))


def _integer_result(x: Tensor) -> int:
    x.add_(1)
    return x.dim()


def _strided(x: Tensor, y: Tensor) -> Tensor:
    # Looks at its operands' memory as it lies.
    x.as_strided((x.numel(),), (1,)).mul_(torch.arange(x.numel()))
    return y.as_strided((y.numel(),), (1,), y.storage_offset()).cumsum(0)


FAKES = {
    "with_result": lambda x, y: torch.empty_like(x),
    "with_results": lambda x, y: (torch.empty_like(x), torch.empty_like(y.sum())),
    "list_and_one": lambda xs, x, ys: torch.empty_like(x),
    "optional": lambda x, cache=None, scale=None: torch.empty_like(x),
    "alias": lambda x, y: x,
    "alias_and_new": lambda x, y: (x, torch.empty_like(y)),
    "integer_result": lambda x: x.dim(),
    "strided": lambda x, y: y.new_empty(y.numel()),
}


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """The operators exist while the tests of this file run."""
    made = torch.library.Library("custom_programs", "DEF")
    for name, schema in DEFINITIONS.items():
        made.define(name + schema)
        made.impl(name, globals()["_" + name], "CompositeExplicitAutograd")
        made.impl(name, FAKES.get(name, lambda *args, **kwargs: None), "Meta")
    yield
    made._destroy()


def ops() -> object:
    return torch.ops.custom_programs


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)


PROGRAMS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "positional": lambda x, y: (ops().positional(x, y), x * 1),
    "positional, twice": lambda x, y: (ops().positional(x, y), ops().positional(x, y), x * 1),
    "positional, on a window": lambda x, y: (ops().positional(x[1:], y[1:]), x * 1),
    "positional, on an intermediate": lambda x, y: (lambda z: (ops().positional(z, y), z, z[0]))(x + 1),
    "positional, on a transposed window": lambda x, y: (ops().positional(x.t(), y), x * 1),
    "second only": lambda x, y: (ops().second_only(x, y), y * 1),
    "second only, all by keyword": lambda x, y: (ops().second_only(y=y, x=x), y * 1),
    "keyword": lambda x, y: (ops().keyword(y, x=x), x * 1),
    "keyword, with a default": lambda x, y: (ops().keyword(y[1:], x=x[0:2], by=3.0), x * 1),
    "several": lambda x, y: (lambda z: (ops().several(x, y, z), z, x * 1))(y + 1),
    "several, two windows of one tensor": lambda x, y: (ops().several(x[0], y[0], x[1:]), x * 1),
    "several, an argument and an intermediate": lambda x, y: (lambda z: (ops().several(z, y, x), z))(y * 2),
    "with a result": lambda x, y: (ops().with_result(x, y), x * 1),
    "with a result that is written": lambda x, y: (ops().with_result(x, y).zero_(), x * 1),
    "with results": lambda x, y: (ops().with_results(x[:, 1], y[:, 1]), x * 1),
    "list": lambda x, y: (ops().list([x, x.clone()], y), x * 1),
    "list of windows": lambda x, y: (ops().list(list(x.unbind(0)), y[0]), x * 1),
    "empty list": lambda x, y: (ops().list([], y), x * 1),
    "list and one": lambda x, y: (ops().list_and_one([x[0], x[1]], y[0], [y[1], y[2]]), x * 1, y * 1),
    "optional, left out": lambda x, y: (ops().optional(x), ops().optional(x, None, y)),
    "optional, given": lambda x, y: (ops().optional(x, y), y * 1),
    "optional, given by keyword": lambda x, y: (ops().optional(x, cache=y[:], scale=x), y * 1),
    "optional list": lambda x, y: (ops().optional_list(y * 2, [None, y, None], x), x * 1),
    "alias": lambda x, y: (ops().alias(x, y), x * 1),
    "alias that is written": lambda x, y: (ops().alias(x, y).mul_(2)[0].zero_(), x * 1),
    "alias of a window": lambda x, y: (ops().alias(x[1], y[1]), x * 1),
    "alias of an intermediate": lambda x, y: (lambda z: (ops().alias(z, y), z))(x * 2),
    "alias and new": lambda x, y: (ops().alias_and_new(x, y), x * 1),
    "numbers": lambda x, y: (ops().numbers(x, 2, 0.5, True, "abc", [1, 2], torch.float64), x * 1),
    "numbers, a default": lambda x, y: (ops().numbers(x, 2, 0.5, True, "ä\n", []), x * 1),
    "strided": lambda x, y: (ops().strided(x, y), x * 1),
    "strided, after a copy of a transposed tensor": lambda x, y: (
        x.copy_(y.t()),
        ops().strided(x, x.clone().copy_(y.t())),
        x * 1,
    ),
    "strided, on a transposed intermediate": lambda x, y: (lambda z: (ops().strided(z, z.clone().t()), z))(x.t() + 1),
    "strided, on a value that was read": lambda x, y: (lambda z: (z.copy_(y.t()), ops().strided(x, z + 1), x * 1))(
        torch.zeros(3, 3)
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, check: Check) -> None:
    check(PROGRAMS[name], lambda: (numbers(3, 3), numbers(3, 3) * 10), text=True)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "alias" not in name])
def test_program_through_dynamo(name: str, check: Check) -> None:
    check(PROGRAMS[name], lambda: (numbers(3, 3), numbers(3, 3) * 10), dynamo=True)


def test_operator_with_an_integer_result(check: Check) -> None:
    check(lambda x: (ops().integer_result(x), x * 1), lambda: (numbers(3),))


def test_unregistered_fake_is_refused(refused: Callable[..., str]) -> None:
    made = torch.library.Library("custom_programs_without_fake", "DEF")
    made.define("f(Tensor(a!) x) -> Tensor")
    made.impl("f", lambda x: x.add_(1).clone(), "CPU")
    refused(lambda x: torch.ops.custom_programs_without_fake.f(x), lambda: (numbers(3),))
    made._destroy()
