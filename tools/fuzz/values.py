"""Statements that compute new values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vllm_ir.tools.fuzz.draw import FLOATS, Draw, broadcasts
from vllm_ir.tools.fuzz.program import Statement


def _arithmetic(t: Tensor) -> bool:
    return t.dtype != torch.bool


def new(d: Draw) -> Statement | None:
    """A new tensor, of one that there is."""
    name = d.pick()
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None:
        return None
    return d.one_of(_NEW)(d, name, tensor)


def _unary(d: Draw, name: str, t: Tensor) -> Statement | None:
    if t.dtype == torch.bool:
        return Statement((d.fresh(),), "~{0}", (name,))
    choices = ["{0} * 2", f"{{0}} + {d.number(t.dtype)}", "{0} * {0}", "{0} + 0", "{0} * 1", "{0} - 1"]
    if not t.dtype.is_complex:
        # The sign of a negated zero of eager mode's complex numbers depends on which of its kernels runs.
        choices += ["-{0}", "{0}.abs()", "{0}.relu()", "{0}.clamp(0, 3)", "({0} > 1)", "{0}.sign()", "{0} == 2"]
    if t.dtype.is_floating_point:
        choices += ["{0} / 2", "{0} * 0.5"]
    return Statement((d.fresh(),), d.one_of(choices), (name,))


def _copy(d: Draw, name: str, t: Tensor) -> Statement | None:
    choices = ["{0}.clone()", "{0}.clone()", "{0}.clone(memory_format=torch.contiguous_format)", "{0}.contiguous()"]
    choices += ["torch.empty_like({0}).copy_({0})", f"{{0}}.to({d.dtype_of(t)}, copy=True)"]
    if t.dim() == 2:
        choices.append("{0}.t().clone()")
    if t.dim():
        choices += ["{0}.flip(0)", f"{{0}}.roll(1, {d.dim(t)})", "{0}.repeat_interleave(2, 0)", "torch.cat([{0}, {0}])"]
        choices += ["{0}.repeat(" + ", ".join(["2", *["1"] * (t.dim() - 1)]) + ")"]
        choices += ["torch.stack([{0}, {0}], -1)", "torch.zeros_like({0})", "torch.full_like({0}, 1)"]
    return Statement((d.fresh(),), d.one_of(choices), (name,), moves=True)


def _cast(d: Draw, name: str, t: Tensor) -> Statement | None:
    if t.dtype.is_complex:
        return None
    target = d.one_of(["float32", "float64", "bfloat16", "float16", "int32", "int64", "bool", "complex64"])
    return Statement((d.fresh(),), f"{{0}}.to(torch.{target})", (name,))


def _binary(d: Draw, name: str, t: Tensor) -> Statement | None:
    other = d.pick(lambda o: broadcasts(o, t) and _arithmetic(o))
    if other is None or not _arithmetic(t):
        return None
    choices = ["{0} + {1}", "{0} - {1}", "{0} * {1}", "torch.add({0}, {1}, alpha=2)"]
    value = d.tensor(other)
    if value is not None and not t.dtype.is_complex and not value.dtype.is_complex:
        choices += ["{0} > {1}", "torch.where({1} > 0, {0}, 0)"]
    return Statement((d.fresh(),), d.one_of(choices), (name, other))


def _extreme(d: Draw, name: str, t: Tensor) -> Statement | None:
    """Largest and smallest of two; 0.0 and -0.0 are different and equal, so of numbers without fraction only."""
    other = d.pick(lambda o: broadcasts(o, t) and o.dtype == t.dtype)
    if other is None or t.dtype.is_complex or t.dtype == torch.bool:
        return None
    return Statement(
        (d.fresh(),), d.one_of(["torch.maximum({0}, {1})", "torch.minimum({0}, {1})"]), (name, other), sums=True
    )


def _gather(d: Draw, name: str, t: Tensor) -> Statement | None:
    if t.dim() == 0 or t.shape[0] == 0:
        return None
    size = t.shape[0]
    index = [d.rng.randrange(size) for _ in range(d.rng.randrange(1, 4))]
    choices = [f"{{0}}[torch.tensor({index})]", f"{{0}}.index_select(0, torch.tensor({index}))"]
    choices.append(f"{{0}}[{index}]")
    data = d.pick(lambda o: o.dtype == torch.int64 and o.dim() == 1)
    if data is not None and d.chance(0.5):
        bound = "{0}.shape[0]" if d.dynamic else str(size)
        return Statement((d.fresh(),), f"{{0}}[{{1}} % {bound}]", (name, data), moves=True)
    if t.dim() == 2:
        choices.append(f"torch.gather({{0}}, 0, torch.tensor({[[i % size] * t.shape[1] for i in index]}))")
    return Statement((d.fresh(),), d.one_of(choices), (name,), moves=True)


def _reduce(d: Draw, name: str, t: Tensor) -> Statement | None:
    if t.dtype.is_complex or t.dim() == 0:
        return None
    dim = d.dim(t)
    choices = [f"{{0}}.sum({dim})", "{0}.sum()", f"{{0}}.cumsum({dim})", f"{{0}}.sum({dim}, keepdim=True)"]
    if t.dtype in FLOATS or t.dtype == torch.int64:
        choices += [f"{{0}}.amax({dim})", f"{{0}}.amin({dim}, keepdim=True)"]
    if t.dtype == torch.bool:
        choices = [f"{{0}}.any({dim})", "{0}.all()"]
    return Statement((d.fresh(),), d.one_of(choices), (name,), sums=True)


def _matmul(d: Draw, name: str, t: Tensor) -> Statement | None:
    other = d.pick(lambda o: o.dim() == 2 and t.dim() == 2 and o.shape[0] == t.shape[1] and o.dtype == t.dtype)
    if t.dtype not in FLOATS:
        return None
    if other is None:
        return Statement((d.fresh(),), "{0} @ {0}.mT", (name,), sums=True) if t.dim() == 2 else None
    return Statement((d.fresh(),), "{0} @ {1}", (name, other), sums=True)


def _scatter(d: Draw, name: str, t: Tensor) -> Statement | None:
    """The functional form of a write, as functionalised graphs have it."""
    if t.dim() == 0 or 0 in t.shape:
        return None
    dim = d.rng.randrange(t.dim())
    size = t.shape[dim]
    i, start = d.rng.randrange(size), d.rng.randrange(size)
    rest = f"{{0}}.shape[{dim}] - {start}" if d.dynamic else str(size - start)
    choices = [
        f"torch.select_scatter({{0}}, {{0}}.select({dim}, 0) + 1, {dim}, {i})",
        f"torch.slice_scatter({{0}}, {{0}}.narrow({dim}, {start}, {rest}) * 2, {dim}, {start})",
        f"{{0}}.index_fill({dim}, torch.tensor([{i}]), {d.number(t.dtype)})",
        f"{{0}}.masked_fill({{0}} == 1, {d.number(t.dtype)})",
        f"{{0}}.index_put((torch.tensor([{i % t.shape[0]}]),), {{0}}[:1])",
        f"{{0}}.index_copy({dim}, torch.tensor([{i}]), {{0}}.narrow({dim}, 0, 1))",
    ]
    if t.dim() > 1:
        choices.append("torch.diagonal_scatter({0}, {0}.diagonal() + 1)")
    return Statement((d.fresh(),), d.one_of(choices), (name,)) if t.dtype != torch.bool else None


def _constant(d: Draw, _name: str, t: Tensor) -> Statement | None:
    """A tensor that is the same in every call, until it is written."""
    if t.dtype.is_complex:
        return None
    numbers = ", ".join(d.number(t.dtype) for _ in range(d.rng.randrange(1, 5)))
    shaped = d.one_of([f"[{numbers}]", f"[{numbers}]", f"[[{numbers}], [{numbers}]]"])
    return Statement((d.fresh(),), f"torch.tensor({shaped}, dtype={d.dtype_of(t)})", (), moves=True)


_NEW: list[Callable[[Draw, str, Tensor], Statement | None]] = [
    _unary,
    _unary,
    _copy,
    _copy,
    _cast,
    _binary,
    _binary,
    _extreme,
    _gather,
    _reduce,
    _matmul,
    _scatter,
    _constant,
]
