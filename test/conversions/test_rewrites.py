"""Passes that stop behind any number of rewrites leave a valid module that means the same."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.conversions.rewrites import LimitedPass
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.tools.pipelines import build_passes
from vllm_ir.tools.text import text_context


def _load(path: Path) -> ModuleType:
    """A file beside the tests, the same module that other tests use."""
    full = f"vllm_ir_{path.parent.name}_{path.stem}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


PROGRAMS = Path(__file__).parents[1] / "programs"
limits = _load(Path(__file__).with_name("limits.py"))
harness, programs = _load(PROGRAMS / "harness.py"), _load(PROGRAMS / "test_random_programs.py")
applied, check_limits, donated = limits.applied, limits.check_limits, limits.donated

Inputs = Callable[[], Sequence[object]]


def check_chain(program: Callable[..., object], make: Inputs) -> list[int]:
    """All limits of the passes that programs go through; how many rewrites each of them has."""
    imported = ir.import_callable(program, *make())
    counts = [check_limits(imported, "functionalize", make, rest=True)]
    counts.append(check_limits(ir.run_passes(imported.clone(), "functionalize"), "eliminate-clones", make))
    marked = ir.run_passes(imported.clone(), "alias-outputs")
    counts.append(check_limits(marked, "functionalize", make))
    return counts


# Programs


@torch.library.custom_op("rewrites_test::rotate", mutates_args=("key", "value"))
def rotate(key: Tensor, value: Tensor, by: Tensor) -> Tensor:
    """Writes two operands, and reads a third."""
    key.add_(by.sum())
    value.sub_(by.sum())
    return by * 2


@rotate.register_fake
def _(key: Tensor, value: Tensor, by: Tensor) -> Tensor:
    return torch.empty_like(by)


def matrix() -> Sequence[Tensor]:
    return [torch.arange(12.0).reshape(3, 4), torch.ones(4)]


def one_memory() -> Sequence[Tensor]:
    base = torch.arange(24.0)
    return [base[:12].view(3, 4), base[8:]]


def with_gaps() -> Sequence[Tensor]:
    base = torch.arange(40.0).view(4, 10)
    return [base[:, :3], base[:, 2:5]]


def windows(x: Tensor, y: Tensor) -> object:
    row = x[0]
    row.add_(y)
    made = torch.zeros(3, 4)
    made[1].copy_(row)
    total = x.sum()
    made.mul_(2)
    return total, made[1:], made[:1], row


def chain(x: Tensor, y: Tensor) -> object:
    column = x.t()[1:3]
    before = column.clone()
    column.mul_(2)
    x.view(-1)[2:5].zero_()
    return before, x[1] + y, x


def in_one_memory(x: Tensor, y: Tensor) -> object:
    x[2].zero_()
    y[1:3].add_(5)
    return x * 1, y[::2]


def written_through_the_first(x: Tensor, y: Tensor) -> object:
    y[1:3].add_(5)
    total = x.sum()
    y.mul_(2)
    return total


def gaps(x: Tensor, y: Tensor) -> object:
    """Memory around the two windows is nobody's, and keeps what it holds."""
    x.add_(1)
    y.mul_(2)
    x[1:].neg_()
    return y[0]


def custom(x: Tensor, y: Tensor) -> object:
    new = x * 2
    seen = torch.ops.rewrites_test.rotate(x[0], new[1], y)
    again = torch.ops.rewrites_test.rotate(new, y, x[2].clone())
    return seen, again, new


def pieces(x: Tensor, y: Tensor) -> object:
    first, second = x.split([1, 2])
    first.add_(y)
    for row in second.unbind():
        row.mul_(y + 1)
    torch._foreach_add_([first, x[2]], [y, y])
    return first, x.as_strided((2, 2), (4, 1), 1)


def metadata(x: Tensor, y: Tensor) -> object:
    x.t_()
    x[0].zero_()
    return y.unsqueeze_(0).add_(1)


def branches(x: Tensor, y: Tensor) -> object:
    def one(a: Tensor, b: Tensor) -> tuple[Tensor]:
        copy = a.clone()
        copy[0].add_(b)
        return (copy * 2,)

    def other(a: Tensor, b: Tensor) -> tuple[Tensor]:
        return (a.clone() + b,)

    x[1].mul_(3)
    (result,) = torch.cond(x.sum() > 0, one, other, (x, y))
    x.add_(result)
    return result.sum(), x[0]


def copies(x: Tensor, y: Tensor) -> object:
    kept = x[0].clone()
    new = torch.select_scatter(x.clone(), y * 2, 0, 1)
    newer = new.index_put((torch.tensor([0, 2]),), y)
    x.copy_(newer.clone())
    return kept + new[1], newer


def random_numbers(x: Tensor, y: Tensor) -> object:
    x[0].bernoulli_(0.5)
    y.uniform_()
    return torch.rand(4) + x[0]


def numbers(x: Tensor, y: Tensor) -> object:
    return x @ y


CASES = [
    *((program, matrix) for program in (windows, chain, custom, pieces, metadata, copies, random_numbers, numbers)),
    *((branches, matrix), (in_one_memory, one_memory), (written_through_the_first, one_memory), (gaps, with_gaps)),
]


@pytest.mark.parametrize(("program", "make"), CASES, ids=lambda value: value.__name__)
def test_every_limit(program: Callable[..., object], make: Inputs) -> None:
    counts = check_chain(program, make)
    assert all(counts)


def test_views_of_every_depth_are_counted() -> None:
    functionalized, in_place, marked = check_chain(windows, matrix)
    # Two writes and a read of x, a write of the new tensor, and the end.
    assert (functionalized, marked) == (5, 5)
    assert in_place >= 4


def test_donated_activations() -> None:
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> object:
        x = x * 2
        weight.add_(1)
        x, residual = ir.ops.fused_add_rms_norm.maybe_inplace(x, residual, weight, 1e-5)
        residual = residual + x[0]
        weight.mul_(2)
        y, residual = ir.ops.fused_add_rms_norm.maybe_inplace(x * 2, residual, weight, 1e-5)
        return y, residual

    def make() -> Sequence[Tensor]:
        torch.manual_seed(0)
        return [torch.randn(2, 8), torch.randn(2, 8), torch.randn(8)]

    imported = ir.import_callable(program, *make())
    count = check_limits(imported, "functionalize", make, rest=True)
    assert donated(applied(imported, f"functionalize{{limit={count - 1}}}")[0]) == [1]
    functional, _ = applied(imported, "functionalize")
    assert donated(functional) == [1]
    assert check_limits(functional, "lower", make) == 2
    check_limits(ir.run_passes(functional, "lower"), "eliminate-clones", make)


def test_lower_counts_operations() -> None:
    def program(x: Tensor, weight: Tensor) -> object:
        x = ir.ops.rms_norm(x, weight, 1e-5)
        x = ir.ops.rms_norm(x.t().contiguous().t(), weight, 1e-5)
        return ir.ops.silu_and_mul(ir.ops.rms_norm(x, None, 1e-6))

    def make() -> Sequence[Tensor]:
        torch.manual_seed(0)
        return [torch.randn(4, 8), torch.randn(8)]

    assert check_limits(ir.run_passes(ir.import_callable(program, *make()), "functionalize"), "lower", make) == 4


def test_alias_outputs_marks_functions() -> None:
    before = ir.import_callable(windows, *matrix())
    assert applied(before, "alias-outputs")[1].done == 1
    unmarked, rewrites = applied(before, "alias-outputs{limit=0}")
    assert (str(unmarked), rewrites.done) == (str(before), 0)
    assert str(applied(before, "alias-outputs{limit=1}")[0]) == str(applied(before, "alias-outputs")[0])


def test_specialize_counts_symbols() -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x[1:].mul_(y.shape[0])
        return x.reshape(-1), y.new_ones(x.shape[0], y.shape[0])

    def make() -> Sequence[Tensor]:
        return [torch.arange(20.0).view(5, 4), torch.ones(3)]

    exported = torch.export.export(
        _Module(program), tuple(make()), dynamic_shapes=({0: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.DYNAMIC})
    )
    module = ir.import_exported(exported)
    sizes = _symbols(module)
    assert len(sizes) == 2
    options = "sizes=" + ",".join(f'"{name}={number}"' for name, number in sizes.items())
    assert check_limits(module, "specialize", make, options=options) == 2


class _Module(torch.nn.Module):
    def __init__(self, program: Callable[..., object]) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: Tensor, y: Tensor) -> object:
        return self.program(x, y)


def _symbols(module: ModuleOp) -> dict[str, int]:
    """The sizes of `x` and `y` by the names of their symbols."""
    text = str(module)
    names = dict.fromkeys(re.findall(r'sizes = \["(\w+)"', text[: text.index("->")]))
    return dict(zip(names, (5, 3), strict=True))


# Random programs


def _index_put(t: Tensor, a: int, b: int) -> Tensor:
    return t.index_put((torch.tensor([a % t.shape[0]]),), programs.values_like(t[0], b), accumulate=bool(b % 2))


def _select_scatter(t: Tensor, a: int, b: int) -> Tensor:
    d = a % t.dim()
    piece = t.select(d, b % t.shape[d]) if b % 3 == 0 else programs.values_like(t.select(d, 0), b)
    return torch.select_scatter(t, piece, d, a % t.shape[d])


UPDATES = [_index_put, _select_scatter, lambda t, a, b: t.clone(), lambda t, a, b: t.masked_fill(t > b, 3)]


def run(steps: Sequence[tuple[str, int, int, int, int]], arguments: Sequence[Tensor]) -> object:
    """Interpret the steps; what they do depends on shapes alone."""
    known = list(arguments)
    seen: list[Tensor] = []
    for kind, name, which, a, b in steps:
        target = known[which % len(known)]
        if target.numel() == 0 or target.dim() == 0:
            continue
        if kind == "view":
            known.append(list(programs.VIEWS.values())[name % len(programs.VIEWS)](target, a, b))
        elif kind == "update":
            known.append(UPDATES[name % len(UPDATES)](target, a, b))
        elif kind == "write":
            source = target * 1 if b % 3 == 0 else programs.values_like(target, a)
            list(programs.WRITES.values())[name % len(programs.WRITES)](target, source, a)
        elif kind == "put back":
            target.copy_(next((other for other in reversed(known) if other.shape == target.shape), target))
        elif kind == "custom":
            other = known[b % len(known)]
            seen.append(torch.ops.rewrites_test.rotate(target, other.clone() if a % 2 else other, target * 1))
        else:
            seen.append(target if kind == "return" else target * 1)
    return seen, known[-1]


KINDS = ["view", "view", "view", "update", "update", "write", "write", "write", "put back", "custom", "read", "return"]
small = st.integers(0, 11)
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40), small, small, small), min_size=3, max_size=12)


def check_random(program_steps: Sequence[tuple[str, int, int, int, int]], make: Inputs) -> None:
    def program(*arguments: Tensor) -> object:
        return run(program_steps, arguments)

    try:
        harness.observe(program, make())
        harness.functionalized(ir.import_callable(program, *make()))
    except (RuntimeError, FxImportError, PassFailedException):
        return  # eager mode or we refuse it: `test/programs` checks that this is right
    module = ir.import_callable(program, *make())
    check_limits(module, "functionalize", make, rest=True)
    check_limits(harness.functionalized(module), "eliminate-clones", make)


@given(program_steps=steps, arguments=st.sampled_from(programs.ARGUMENTS))
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])
def test_every_limit_of_random_programs(program_steps: Sequence[object], arguments: Inputs) -> None:
    check_random(program_steps, arguments)


@pytest.mark.slow
@given(program_steps=steps, arguments=st.sampled_from(programs.ARGUMENTS))
@settings(max_examples=400, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
def test_every_limit_of_many_random_programs(program_steps: Sequence[object], arguments: Inputs) -> None:
    check_random(program_steps, arguments)


# The option


def test_a_limit_is_a_number_of_rewrites() -> None:
    with pytest.raises(ValueError, match="option limit is -1, it takes a number of rewrites: 0 or more"):
        build_passes("lower{limit=-1}")


def test_the_last_rewrite_is_described() -> None:
    _, rewrites = applied(ir.import_callable(windows, *matrix()), "functionalize{limit=2}")
    assert rewrites.last is not None
    line = windows.__code__.co_firstlineno + 4
    assert rewrites.last.location.endswith(f"test_rewrites.py:{line}")
    assert "@aten.copy_.default(" in rewrites.last.operation


def test_each_run_of_a_pass_counts_anew() -> None:
    (entry,) = build_passes("functionalize{limit=1}")
    assert isinstance(entry, LimitedPass)
    assert entry.rewrites.done == 0
    texts: set[str] = set()
    for _ in range(2):
        module = ir.import_callable(windows, *matrix())
        entry.apply(text_context(), module)
        texts.add(str(module))
        assert entry.rewrites.done == 1
    assert len(texts) == 1
