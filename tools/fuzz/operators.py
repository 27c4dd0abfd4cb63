"""Operators for generated programs: custom ones with every kind of mutable argument, and ours with kernels that write.

Everything is a few sums and products, so that results are exact.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vllm_ir.frontends.ops import register_op, statically_known
from vllm_ir.tools.fuzz.torch_internals import define_operator

NAMESPACE = "vllm_ir_fuzz"


def _bump(x: Tensor, y: Tensor) -> None:
    x.mul_(2).add_(y)


def _second(x: Tensor, y: Tensor) -> None:
    y.copy_(x + 3)


def _keyword(y: Tensor, *, x: Tensor, by: float = 2.0) -> None:
    x.mul_(by).sub_(y)


def _two(x: Tensor, y: Tensor, z: Tensor) -> None:
    x.add_(y)
    z.sub_(y)


def _result(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x * 2


def _results(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(y)
    return x - y, y + 1


def _each(xs: list[Tensor], y: Tensor) -> None:
    for number, x in enumerate(xs):
        x.add_(y * (number + 1))


def _each_and_one(xs: list[Tensor], x: Tensor, ys: list[Tensor]) -> Tensor:
    for a, b in zip(xs, ys, strict=True):
        a.add_(b)
        x.add_(b)
    return x.clone()


def _optional(x: Tensor, cache: Tensor | None = None, scale: Tensor | None = None) -> Tensor:
    result = x + 1 if scale is None else x + scale
    if cache is not None:
        cache.add_(x)
    return result


def _numbers(x: Tensor, n: int, shape: list[int], flag: bool) -> None:
    x.add_(n + sum(shape) + int(flag))


def _pure(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 - y


def _flat(x: Tensor) -> Tensor:
    # Goes by how memory lies: the strides of the operand are part of what it means.
    order = sorted(range(x.dim()), key=lambda dimension: (-x.stride(dimension), dimension))
    return x.permute(order).reshape(-1).clone()


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _fake_results(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return _like(x), _like(y)


def _fake_flat(x: Tensor) -> Tensor:
    return x.new_empty(x.numel())


def _nothing(*_args: object, **_named: object) -> None:
    pass


def _first(x: Tensor, *_args: object, **_named: object) -> Tensor:
    return _like(x)


def _second_operand(_xs: list[Tensor], x: Tensor, _ys: list[Tensor]) -> Tensor:
    return _like(x)


DEFINITIONS: dict[str, tuple[str, Callable[..., object], Callable[..., object]]] = {
    "bump": ("(Tensor(a!) x, Tensor y) -> ()", _bump, _nothing),
    "second": ("(Tensor x, Tensor(a!) y) -> ()", _second, _nothing),
    "keyword": ("(Tensor y, *, Tensor(a!) x, float by=2.0) -> ()", _keyword, _nothing),
    "two": ("(Tensor(a!) x, Tensor y, Tensor(b!) z) -> ()", _two, _nothing),
    "result": ("(Tensor(a!) x, Tensor y) -> Tensor", _result, _first),
    "results": ("(Tensor(a!) x, Tensor y) -> (Tensor, Tensor)", _results, _fake_results),
    "each": ("(Tensor(a!)[] xs, Tensor y) -> ()", _each, _nothing),
    "each_and_one": ("(Tensor(a!)[] xs, Tensor(b!) x, Tensor[] ys) -> Tensor", _each_and_one, _second_operand),
    "optional": ("(Tensor x, Tensor(a!)? cache=None, Tensor? scale=None) -> Tensor", _optional, _first),
    "numbers": ("(Tensor(a!) x, int n, int[] shape, bool flag) -> ()", _numbers, _nothing),
    "pure": ("(Tensor x, Tensor y) -> Tensor", _pure, _first),
    "flat": ("(Tensor x) -> Tensor", _flat, _fake_flat),
}
"""Schema, implementation, and what it gives for tensors without data, by name."""

_library = torch.library.Library(NAMESPACE, "DEF")
for _name, (_schema, _implementation, _fake) in DEFINITIONS.items():
    define_operator(_library, _name, _schema, _implementation, _fake)


@register_op(allow_inplace=True)
def fuzz_add(x: Tensor, y: Tensor) -> Tensor:
    """A sum of which the first operand may be overwritten."""
    return x + y * 2


def _same_shape(x: Tensor, y: Tensor) -> bool:
    return x.dim() == y.dim() and all(statically_known(a == b) for a, b in zip(x.shape, y.shape, strict=True))


def _takes_result(x: Tensor, y: Tensor) -> bool:
    return _same_shape(x, y)


@fuzz_add.register_impl("writes", supports_args=_takes_result, inplace=True)
def _fuzz_add_writes(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(y * 2)


@fuzz_add.register_impl("spoils", inplace=True)
def _fuzz_add_spoils(x: Tensor, y: Tensor) -> Tensor:
    result = x + y * 2
    x.fill_(77)
    return result


@register_op(activations=["x", "residual"], allow_inplace=True)
def fuzz_add_two(x: Tensor, residual: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two results, each of which may take the memory of an operand."""
    total = x + residual
    return total - y, total


def _equal_shapes(x: Tensor, residual: Tensor, y: Tensor) -> bool:
    return _same_shape(x, residual) and _same_shape(x, y)


@fuzz_add_two.register_impl("writes", supports_args=_equal_shapes, inplace=True)
def _fuzz_add_two_writes(x: Tensor, residual: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    residual.add_(x)
    x.copy_(residual - y)
    return x, residual


@fuzz_add_two.register_impl("spoils", inplace=True)
def _fuzz_add_two_spoils(x: Tensor, residual: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    total = residual + x
    result = total - y
    x.fill_(77)
    residual.fill_(88)
    return result, total


PROVIDERS = {"fuzz_add": ("writes", "spoils"), "fuzz_add_two": ("writes", "spoils")}
"""Implementations other than the native one, by op."""
