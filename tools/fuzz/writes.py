"""Statements that write memory that is already there."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vllm_ir.tools.fuzz.draw import FLOATS, Draw, broadcasts
from vllm_ir.tools.fuzz.footprint import overlap, same_window
from vllm_ir.tools.fuzz.program import Statement

Write = Callable[[Draw, str, Tensor], Statement | None]
"""A statement that writes the tensor of the name."""


def write(d: Draw) -> Statement | None:
    """A write to a tensor that the program has."""
    name = d.writable()
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None:
        return None
    return d.one_of(_WRITES)(d, name, tensor)


def _source(d: Draw, t: Tensor, *, arithmetic: bool = False, strict: bool = False) -> str | None:
    """The name of a tensor that can be written to `t`: of other memory, or the same window unless `strict`."""

    def fits(other: Tensor) -> bool:
        if not broadcasts(other, t) or (other.dtype.is_complex and not t.dtype.is_complex):
            return False
        if arithmetic and (other.dtype != t.dtype and not torch.can_cast(other.dtype, t.dtype)):
            return False
        if strict and other.dtype != t.dtype:
            return False
        return not overlap(other, t) or (not strict and same_window(other, t))

    return d.pick(fits)


def _result(d: Draw) -> tuple[str, ...]:
    """Now and then the result of a write is used."""
    return (d.fresh(),) if d.chance(0.25) else ()


def _number(d: Draw, name: str, t: Tensor) -> Statement | None:
    number = d.number(t.dtype)
    choices = [f"{{0}}.fill_({number})", "{0}.zero_()", f"{{0}}.copy_(torch.tensor({number}))"]
    if t.dtype != torch.bool:
        choices += [f"{{0}}.add_({number})", "{0}.mul_(2)", f"{{0}}.sub_({number})"]
        if not t.dtype.is_complex:
            choices += ["{0}.neg_()", "{0}.clamp_(0, 3)", "{0}.abs_()", "{0}.relu_()"]
    else:
        choices += ["{0}.logical_not_()"]
    return Statement(_result(d), d.one_of(choices), (name,), writes=(0,), elementwise=True)


def _copy(d: Draw, name: str, t: Tensor) -> Statement | None:
    source = _source(d, t)
    if source is None:
        return _number(d, name, t)
    choices = ["{0}.copy_({1})", "{0}.copy_({1})", "{0}[...] = {1}"]
    if t.dim():
        choices.append("{0}[:] = {1}")
    template = d.one_of(choices)
    other = d.tensor(source)
    moves = other is not None and other.dtype == t.dtype
    results = () if "=" in template else _result(d)
    return Statement(results, template, (name, source), writes=(0,), elementwise=True, moves=moves)


def _arithmetic(d: Draw, name: str, t: Tensor) -> Statement | None:
    source = _source(d, t, arithmetic=True)
    if source is None or t.dtype == torch.bool:
        return _number(d, name, t)
    choices = ["{0}.add_({1})", "{0}.sub_({1})", "{0}.mul_({1})", "{0} += {1}", "{0}.add_({1}, alpha=2)"]
    template = d.one_of(choices)
    if "+=" in template:
        return Statement((), template, (name, source), writes=(0,), elementwise=True)
    return Statement(_result(d), template, (name, source), writes=(0,), elementwise=True)


def _out(d: Draw, name: str, t: Tensor) -> Statement | None:
    if not t.is_contiguous() and d.chance(0.9):
        return None  # Dynamo has no graph for it
    first = d.pick(lambda o: o.dtype == t.dtype and o.shape == t.shape and (not overlap(o, t) or same_window(o, t)))
    second = _source(d, t, arithmetic=True)
    if first is None or second is None or t.dtype == torch.bool:
        return None
    choices = ["torch.add({1}, {2}, out={0})", "torch.mul({1}, {2}, out={0})", "torch.sub({1}, {2}, out={0})"]
    return Statement(_result(d), d.one_of(choices), (name, first, second), writes=(0,), elementwise=True)


def _out_of_others(d: Draw, name: str, t: Tensor) -> Statement | None:
    if t.dim() == 0 or t.shape[0] < 2 or not t.is_contiguous():
        return None
    first = d.pick(
        lambda o: o.dtype == t.dtype and o.shape[1:] == t.shape[1:] and o.dim() == t.dim() and not overlap(o, t)
    )
    if first is None:
        return None
    value = d.tensor(first)
    if value is None or value.shape[0] * 2 != t.shape[0]:
        return None
    return Statement(_result(d), "torch.cat([{1}, {1}], out={0})", (name, first), writes=(0,), moves=True)


def _item(d: Draw, name: str, t: Tensor) -> Statement | None:
    """Assignment to a part."""
    if t.dim() == 0 or 0 in t.shape:
        return None
    size = t.shape[0]
    i = d.index(size)
    number = d.number(t.dtype)
    parts = [
        f"{i}",
        f"{i}:",
        "::2",
        "1:",
        f"..., {d.index(t.shape[-1])}",
        "..., ::2",
        f"[{i % size}]",
        f"{{0}} > {'0' if t.dtype != torch.bool else 'False'}",
    ]
    if t.dim() > 1:
        parts += [f":, {d.index(t.shape[1])}", f"{i}, 1:", "None, :, 1:"]
    if size > 1:
        parts.append(f"torch.tensor([{size - 1}, 0])")
    part = d.one_of(parts)
    if t.dtype.is_complex and ">" in part:
        part = ":"
    choices = [f"{{0}}[{part}] = {number}"]
    if t.dtype != torch.bool:
        choices += [f"{{0}}[{part}] += {number}", f"{{0}}[{part}] *= 2"] if ">" not in part else []
    return Statement((), d.one_of(choices), (name,), writes=(0,), elementwise=True)


def _part(d: Draw, name: str, t: Tensor) -> Statement | None:
    """Another tensor is written to a part."""
    if t.dim() == 0 or 0 in t.shape:
        return None
    dim = d.rng.randrange(t.dim())
    i = d.index(t.shape[dim])
    part = t.select(dim, i)
    source = _source(d, part)
    if source is None:
        return None
    other = d.tensor(source)
    if other is None or overlap(other, t):
        return None
    template = f"{{0}}[{':, ' * dim}{i}] = {{1}}"
    return Statement((), template, (name, source), writes=(0,), moves=other.dtype == t.dtype)


def _indexed(d: Draw, name: str, t: Tensor) -> Statement | None:
    if t.dim() == 0 or 0 in t.shape or t.dtype == torch.bool:
        return None
    size = t.shape[0]
    count = d.rng.randrange(1, size + 1)
    index = d.rng.sample(range(size), min(count, 3))
    if d.chance(0.2):
        index[0] -= size
    positive = [i % size for i in index]
    source = d.pick(
        lambda o: o.dtype == t.dtype and o.shape[1:] == t.shape[1:] and o.dim() == t.dim() and not overlap(o, t)
    )
    value = None if source is None else d.tensor(source)
    if source is None or value is None or value.shape[0] < len(index):
        return _indexed_by_itself(d, name, t, positive)
    rows = f"{{1}}[:{len(index)}]"
    again = [*index, index[0]][: value.shape[0]]
    accumulate, template = d.one_of(
        [
            (False, f"{{0}}.index_put_((torch.tensor({index}),), {rows})"),
            (True, f"{{0}}.index_put_((torch.tensor({again}),), {{1}}[:{len(again)}], True)"),
            (False, f"{{0}}[torch.tensor({index})] = {rows}"),
            (False, f"{{0}}.index_copy_(0, torch.tensor({positive}), {rows})"),
            (True, f"{{0}}.index_add_(0, torch.tensor({positive}), {rows})"),
            (True, f"{{0}}.index_add_(0, torch.tensor({[positive[0]] * len(positive)}), {rows}, alpha=2)"),
            (True, f"{{0}}.scatter_add_(0, torch.zeros_like({rows}, dtype=torch.int64), {rows})"),
            (False, f"{{0}}.scatter_(0, torch.full_like({rows}[:1], {positive[0]}, dtype=torch.int64), {rows})"),
        ]
    )
    results = () if "] =" in template else _result(d)
    return Statement(results, template, (name, source), writes=(0,), sums=accumulate)


def _indexed_by_itself(d: Draw, name: str, t: Tensor, index: list[int]) -> Statement:
    number = d.number(t.dtype)
    choices = [
        f"{{0}}.index_fill_({d.rng.randrange(t.dim())}, torch.tensor([0]), {number})",
        f"{{0}}.index_put_((torch.tensor({index}),), torch.tensor({number}, dtype={d.dtype_of(t)}))",
        f"{{0}}.index_put_((torch.tensor({[index[0]] * 2}),), torch.tensor({number}, dtype={d.dtype_of(t)}), True)",
        f"{{0}}.scatter_(0, torch.zeros({[1] * t.dim()}, dtype=torch.int64), {number})",
    ]
    template = d.one_of(choices)
    return Statement(_result(d), template, (name,), writes=(0,), sums="True" in template)


def _masked(d: Draw, name: str, t: Tensor) -> Statement | None:
    number = d.number(t.dtype)
    mask = d.pick(lambda o: o.dtype == torch.bool and broadcasts(o, t) and not overlap(o, t))
    other = d.pick(lambda o: broadcasts(o, t) and not o.dtype.is_complex and o.dtype != torch.bool)
    if mask is not None and d.chance(0.5):
        return Statement(_result(d), f"{{0}}.masked_fill_({{1}}, {number})", (name, mask), writes=(0,))
    if other is None:
        return None
    # The mask is a new tensor, whatever it is made of.
    choices = [f"{{0}}.masked_fill_({{1}} > 1, {number})"]
    value = d.tensor(other)
    if value is not None and value.shape == t.shape:
        choices += [
            f"{{0}}[{{1}} > 1] = {number}",
            f"{{0}}.index_put_(({{1}} > 1,), torch.tensor({number}, dtype={d.dtype_of(t)}))",
        ]
    return Statement((), d.one_of(choices), (name, other), writes=(0,), elementwise=True)


def _several(d: Draw, name: str, t: Tensor) -> Statement | None:
    """One call that writes several tensors."""
    if t.dtype == torch.bool:
        return None
    other = d.pick(lambda o: o.dtype == t.dtype and not overlap(o, t))
    number = d.number(t.dtype)
    source = _source(d, t, strict=True)
    if other is not None and d.chance(0.5):
        template = d.one_of(
            [
                f"torch._foreach_add_([{{0}}, {{1}}], {number})",
                "torch._foreach_mul_([{0}, {1}], 2)",
                "torch._foreach_zero_([{0}, {1}])",
            ]
        )
        return Statement((), template, (name, other), writes=(0, 1), elementwise=True)
    if source is None or d.dynamic:
        return None  # PyTorch has no functional form of these for dynamic sizes
    template = d.one_of(
        ["torch._foreach_add_([{0}], [{1}])", "torch._foreach_copy_([{0}], [{1}])", "torch._foreach_mul_([{0}], [{1}])"]
    )
    return Statement((), template, (name, source), writes=(0,), elementwise=True)


def _reduced(d: Draw, name: str, t: Tensor) -> Statement | None:
    """The result of a reduction is written."""
    source = d.pick(lambda o: o.dim() > 0 and o.dtype == t.dtype and o.shape[1:] == t.shape and not overlap(o, t))
    if source is None or t.dtype == torch.bool or t.dtype.is_complex:
        return None
    choices = ["{0}.copy_({1}.sum(0))", "{0}.add_({1}.sum(0))"]
    if t.is_contiguous():
        choices.append("torch.sum({1}, 0, out={0})")
    return Statement(_result(d), d.one_of(choices), (name, source), writes=(0,), sums=True)


def _ternary(d: Draw, name: str, t: Tensor) -> Statement | None:
    first, second = _source(d, t, strict=True), _source(d, t, strict=True)
    if first is None or second is None or t.dtype not in FLOATS:
        return None
    choices = ["{0}.addcmul_({1}, {2})", "{0}.lerp_({1}, 0.5)"]
    if t.is_contiguous():
        choices.append("torch.where({1} > 0, {2}, {1}, out={0})")
    template = d.one_of(choices)
    return Statement(_result(d), template, (name, first, second), writes=(0,), elementwise=True, sums=True)


def swap(d: Draw) -> Statement | None:
    """Two tensors trade places through a copy: needs a clone that must stay."""
    name = d.writable()
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None:
        return None
    other = d.pick(lambda o: o.shape == tensor.shape and o.dtype == tensor.dtype and not overlap(o, tensor))
    if other is None:
        return None
    template = d.one_of(
        ["torch._foreach_copy_([{0}, {1}], [{1}.clone(), {0}.clone()])", "({0}.copy_({1}), {1}.add_({0}))"]
    )
    return Statement((), template, (name, other), writes=(0, 1), elementwise=True, moves=False)


def replace_buffer(d: Draw) -> Statement | None:
    """A module's buffer becomes another tensor."""
    buffers = [name for name in d.names if name.startswith("self.")]
    if not buffers:
        return None
    target = d.one_of(buffers)
    source = d.pick()
    if source is None:
        return None
    return Statement((target,), d.one_of(["{0} + 1", "{0}.clone()", "{0}", "{0}[...]"]), (source,), moves=False)


_WRITES: list[Write] = [
    _number,
    _number,
    _copy,
    _copy,
    _copy,
    _arithmetic,
    _arithmetic,
    _out,
    _out_of_others,
    _item,
    _item,
    _part,
    _indexed,
    _indexed,
    _masked,
    _several,
    _reduced,
    _ternary,
]
