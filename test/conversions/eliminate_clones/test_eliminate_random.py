"""Random programs of views, updates, clones and calls of custom operators, in eager mode and with updates in place."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.backends.fx.export import export_fx
from vllm_ir.conversions.eliminate_clones import EliminateClonesPass
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.importer import import_callable
from vllm_ir.tools.text import parse


def _load(name: str) -> ModuleType:
    """A file of `test/programs`, the same module that the tests there use."""
    full = f"vllm_ir_programs_{name}"
    if full not in sys.modules:
        folder = Path(__file__).parents[2] / "programs"
        spec = importlib.util.spec_from_file_location(full, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


harness, programs = _load("harness"), _load("test_random_programs")

Step = tuple[str, int, int, int, int]


@torch.library.custom_op("eliminate_random::rotate", mutates_args=("key", "value"))
def rotate(key: Tensor, value: Tensor, by: Tensor) -> Tensor:
    """Writes two operands, and reads a third that it expects to stay as it is."""
    key.add_(by.sum())
    value.sub_(by.sum())
    return by * 2


@rotate.register_fake
def _(key: Tensor, value: Tensor, by: Tensor) -> Tensor:
    return torch.empty_like(by)


def _position(t: Tensor, a: int) -> tuple[int, int]:
    """A dimension, and an index into it."""
    d = a % t.dim()
    return d, a % t.shape[d]


def _put(t: Tensor, a: int, b: int) -> Tensor:
    index = torch.tensor([a % t.shape[0], b % t.shape[0]])
    return t.index_put((index,), programs.values_like(t[:1], b)[0], accumulate=bool(b % 2))


def _slice_scatter(t: Tensor, a: int, b: int) -> Tensor:
    d, start = _position(t, a)
    piece = t.narrow(d, start, t.shape[d] - start)
    return torch.slice_scatter(t, piece * 2 if b % 2 else programs.values_like(piece, b), d, start, t.shape[d])


def _select_scatter(t: Tensor, a: int, b: int) -> Tensor:
    d, index = _position(t, a)
    # Every third puts back what is there, or a neighbour.
    piece = t.select(d, b % t.shape[d]) if b % 3 == 0 else programs.values_like(t.select(d, index), b)
    return torch.select_scatter(t, piece, d, index)


def _diagonal_scatter(t: Tensor, a: int, b: int) -> Tensor:
    return torch.diagonal_scatter(t, programs.values_like(t.diagonal(), b)) if t.dim() > 1 else t * 1


# Functional updates: the new value of a tensor, as functionalized graphs have them.
UPDATES: list[Callable[[Tensor, int, int], Tensor]] = [
    _put,
    _slice_scatter,
    _select_scatter,
    _diagonal_scatter,
    lambda t, a, b: t.masked_fill(t > b, 3),
    lambda t, a, b: t.index_add(0, torch.tensor([a % t.shape[0]]), t[:1] * 2),
    # The operand that could be written is read as another one, too.
    lambda t, a, b: t.index_add(0, torch.arange(t.shape[0]), t),
]

COPIES: list[Callable[[Tensor, int], Tensor]] = [
    lambda t, a: t.clone(),
    lambda t, a: t.clone(memory_format=torch.contiguous_format),
    lambda t, a: t.contiguous() if a % 2 else t.clone(),
    lambda t, a: t.t().clone() if t.dim() == 2 else t.clone(),
    lambda t, a: t.to(t.dtype, copy=True),
]


def _swap(first: Tensor, second: Tensor) -> None:
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)


def _custom(windows: Sequence[Tensor], a: int, b: int) -> Tensor:
    key, value = windows[a % len(windows)], windows[b % len(windows)]
    by = windows[(a + b) % len(windows)]
    return torch.ops.eliminate_random.rotate(key.clone() if a % 3 else key, value, by.clone() if b % 2 else by)


def run(steps: Sequence[Step], arguments: Sequence[Tensor]) -> object:
    """Interpret the steps; what they do depends on shapes alone."""
    windows = list(arguments)
    seen: list[Tensor] = []
    for kind, name, which, a, b in steps:
        target = windows[which % len(windows)]
        if target.numel() == 0 or target.dim() == 0:
            continue
        if kind == "view":
            windows.append(list(programs.VIEWS.values())[name % len(programs.VIEWS)](target, a, b))
        elif kind == "update":
            windows.append(UPDATES[name % len(UPDATES)](target, a, b))
        elif kind == "copy":
            windows.append(COPIES[name % len(COPIES)](target, a))
        elif kind == "write":
            source = target * 1 if b % 3 == 0 else programs.values_like(target, a)
            list(programs.WRITES.values())[name % len(programs.WRITES)](target, source, a)
        elif kind == "put back":
            target.copy_(next((w for w in reversed(windows) if w.shape == target.shape), target))
        elif kind == "swap":
            other = next((w for w in windows if w.shape == target.shape and w is not target), target.clone())
            _swap(target, other)
        elif kind == "custom":
            seen.append(_custom(windows, a, b))
        elif kind == "read":
            seen.append(target * 1)
        elif kind == "return":
            seen.append(target)
    return seen, windows[-1]


KINDS = [
    *("view", "view", "view", "update", "update", "update", "copy", "copy", "write", "write"),
    *("put back", "put back", "swap", "custom", "read", "return"),
]
small = st.integers(0, 11)
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40), small, small, small), min_size=2, max_size=14)


def two_of_a_kind() -> Sequence[Tensor]:
    return [torch.arange(24.0).reshape(4, 6), torch.arange(24.0, 48.0).reshape(4, 6), torch.arange(6.0)]


def integers() -> Sequence[Tensor]:
    return [torch.arange(16).reshape(4, 4), torch.arange(16, 32).reshape(4, 4).t()]


ARGUMENTS = [*programs.ARGUMENTS, two_of_a_kind, two_of_a_kind, integers]


def in_place(module: ModuleOp) -> Callable[..., object]:
    """The functional program with its updates in place; the module prints as it was parsed."""
    EliminateClonesPass().apply(Context(), module)
    module.verify()
    text = str(module)
    assert str(parse(text)) == text
    return export_fx(module)


def compare(program_steps: Sequence[Step], make: Callable[[], Sequence[Tensor]]) -> None:
    def program(*arguments: Tensor) -> object:
        return run(program_steps, arguments)

    try:
        expected = harness.observe(program, make())
        module = harness.functionalized(import_callable(program, *make()))
    except (RuntimeError, FxImportError, PassFailedException):
        return  # eager mode or we refuse it: `test/programs` checks that this is right
    compiled = in_place(module)
    expected.compare(harness.observe(lambda *values: compiled(*values), make()), "in place")


@given(program_steps=steps, arguments=st.sampled_from(ARGUMENTS))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_random_programs(program_steps: Sequence[Step], arguments: Callable[[], Sequence[Tensor]]) -> None:
    compare(program_steps, arguments)


@pytest.mark.slow
@given(program_steps=steps, arguments=st.sampled_from(ARGUMENTS))
@settings(max_examples=2000, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
def test_many_random_programs(program_steps: Sequence[Step], arguments: Callable[[], Sequence[Tensor]]) -> None:
    compare(program_steps, arguments)
