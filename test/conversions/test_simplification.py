"""`eliminate-no-ops`, `coalesce-splits`, `forward-scatters`, `cse` and `dce`: what programs do stays what it was."""

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
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.conversions.analysis.identities import keeps_elements
from vllm_ir.conversions.rewrites import LimitedPass
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.types import element_type
from vllm_ir.tools.operators.observation import observe
from vllm_ir.tools.pipelines import build_passes
from vllm_ir.tools.text import text_context
from vllm_ir.tools.validation.validate import compare


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
limits, programs = _load(Path(__file__).with_name("limits.py")), _load(PROGRAMS / "test_random_programs.py")

PASSES = ("eliminate-no-ops", "coalesce-splits", "forward-scatters{exact=true}", "cse", "dce")
Inputs = Callable[[], Sequence[object]]


def functional(program: Callable[..., object], *inputs: object, spec: str = "functionalize") -> ModuleOp:
    return ir.run_passes(ir.import_callable(program, *inputs), spec)


def check(
    before: ModuleOp, spec: str, allowed: Sequence[str] = ("exact",), only: str | None = None
) -> tuple[ModuleOp, int]:
    """Run a pass on a clone and compare what a caller sees; the module behind it, and how many rewrites there were.

    On all kinds of inputs, or on the one of that name.
    """
    (entry,) = build_passes(spec)
    after = before.clone()
    entry.apply(text_context(), after)
    after.verify()
    verdict = compare(spec, before, after, only=only)
    assert verdict.status in allowed, f"{verdict}\n{before}\n{after}"
    return after, entry.rewrites.done if isinstance(entry, LimitedPass) else 0


def called(module: ModuleOp) -> list[str]:
    return [op.target.split(".")[1] for op in module.walk() if isinstance(op, CallOp)]


# Elements


DTYPES = (*(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64), torch.int8, torch.int64)
REALS, INTEGERS = DTYPES[:4], DTYPES[5:]
CALLS: dict[str, tuple[Callable[[Tensor], Tensor], Sequence[torch.dtype]]] = {
    "x * 1": (lambda x: x * 1, (*REALS, *INTEGERS)),
    "x + 0": (lambda x: x + 0, INTEGERS),
    "x + -0.0": (lambda x: x + -0.0, REALS),
    "x - 0": (lambda x: x - 0, (*REALS, *INTEGERS)),
    "x / 1": (lambda x: x / 1, REALS),
    "x ** 1": (lambda x: x**1, DTYPES),
    "x * 1.0": (lambda x: x * 1.0, REALS),
    "x & -1": (lambda x: x & -1, INTEGERS),
    "x ^ 0": (lambda x: x ^ 0, INTEGERS),
    "x.clone()": (lambda x: x.clone(), DTYPES),
    "x.to(copy=True)": (lambda x: x.to(x.dtype, copy=True), DTYPES),
    "x * (1 + 1e-6)": (lambda x: x * (1 + 1e-6), (torch.bfloat16, torch.float16)),
    "x + 1e-300": (lambda x: x + 1e-300, ()),
    "x & ~(1 << 5)": (lambda x: x & ~(1 << 5), ()),
    "clamp": (lambda x: x.clamp(min=torch.finfo(x.dtype).min), ()),
    "hardshrink": (lambda x: torch.nn.functional.hardshrink(x, 1e-7), ()),
    "fmod": (lambda x: x.fmod(3e38), ()),
    "x.abs()": (lambda x: x.abs(), ()),
}
"""Calls, and the dtypes whose elements they leave alone."""
REFUSED = {"x & -1": INTEGERS, "x ^ 0": INTEGERS, "x & ~(1 << 5)": INTEGERS, "clamp": REALS, "hardshrink": REALS}
"""Where only some dtypes have the operator."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_calls_that_keep_elements(dtype: torch.dtype) -> None:
    for name, (call, kept) in CALLS.items():
        if dtype not in REFUSED.get(name, DTYPES) or (name == "fmod" and dtype not in REALS):
            continue
        x = torch.ones(3).to(dtype)

        def program(x: Tensor, call: Callable[[Tensor], Tensor] = call) -> Tensor:
            return torch.stack([call(x).to(dtype), x])

        module = functional(program, x)
        after, done = check(module, "eliminate-no-ops")
        assert bool(done) == (dtype in kept), f"{name} on {dtype}\n{after}"


@torch.library.custom_op("simplification_test::same", mutates_args=(), tags=(torch.Tag.pointwise,))
def same(x: Tensor) -> Tensor:
    """Keeps the elements of any sample; nobody knows of others."""
    return x.clone()


@same.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_operators_of_others_are_not_asked() -> None:
    module = functional(lambda x: same(x).neg(), torch.ones(4))
    assert called(ir.run_passes(module, "eliminate-no-ops")) == ["same", "neg"]


def test_samples_have_every_single_bit() -> None:
    module = functional(lambda x: x & ~(1 << 17), torch.zeros(2, dtype=torch.int32))
    (call,) = (op for op in module.walk() if isinstance(op, CallOp))
    overload = torch.ops.aten.bitwise_and.Scalar
    assert not keeps_elements(overload, call.args, call.kwargs, element_type(torch.int32), 1)


# What the caller sees


def fresh(x: Tensor, y: Tensor) -> object:
    """No result is an argument, or another result."""
    y.mul_(2)
    n = (x * 1).view(4, 4)
    return x * 1, x.clone(), n, n.view(2, 8), y.clone(), (y * 1).t().t(), x.view(-1)[:].clone()


def test_no_result_becomes_an_alias() -> None:
    inputs = torch.ones(2, 8), torch.ones(3, 3)
    for spec in ("functionalize", "alias-outputs,functionalize"):
        before = functional(fresh, *inputs, spec=spec)
        after, done = check(before, "eliminate-no-ops")
        assert done > 2
        check(after, "eliminate-clones") if spec == "functionalize" else None
        exported = ir.export_fx(after.clone())
        expected = observe(fresh, [torch.ones(2, 8), torch.ones(3, 3)])
        if spec == "functionalize":
            expected.compare(observe(exported, [torch.ones(2, 8), torch.ones(3, 3)]), str(after))


def old_value(x: Tensor) -> object:
    """A copy of what is overwritten later."""
    before = x.clone()
    seen = before * 1
    x.add_(1)
    x[:].mul_(2)
    x[0:2].copy_(x[0:2])
    return before + seen, before


def test_copies_of_arguments_that_are_written() -> None:
    before = functional(old_value, torch.ones(2, 3))
    after, done = check(before, "eliminate-no-ops")
    assert done >= 3
    check(after, "eliminate-clones")


# Splits and scatters


def rotated(x: Tensor, sizes: Sequence[int], dim: int, *, read_whole: bool = False) -> object:
    """Split, change, scatter, split again: with sizes and along a dimension of one's own."""
    q, k, v = x.split([4, 2, 2], 1)
    new = x.clone()
    new[:, :4] = q * 2
    new[:, 4:6] = k + 1
    pieces = new.split(list(sizes), dim)
    whole = [new.sum(1)] if read_whole else []
    return [piece * 3 for piece in pieces], v + 1, whole


@pytest.mark.parametrize("read_whole", [False, True])
@pytest.mark.parametrize(
    ("sizes", "dim", "scatters"),
    [
        ([4, 2, 2], 1, 0),
        ([4, 2, 2], -1, 0),
        ([2, 4, 2], 1, 2),
        ([4, 4], 1, 2),
        ([1, 2, 2, 3], 1, 2),  # the third is as large as the second scatter's piece, and beside it
        ([4, 2, 2], 0, 2),
        ([4, 1, 1, 2], 1, 2),
    ],
)
def test_split_behind_scatters(sizes: Sequence[int], dim: int, scatters: int, read_whole: bool) -> None:
    def program(x: Tensor) -> object:
        return rotated(x, sizes, dim, read_whole=read_whole)

    before = functional(program, torch.arange(64.0).reshape(8, 8), spec="functionalize,eliminate-no-ops")
    after, _ = check(before, "forward-scatters")
    after, _ = check(after, "coalesce-splits")
    after, _ = check(after, "dce")
    assert called(after).count("slice_scatter") == (2 if read_whole else scatters), str(after)
    check(after, "eliminate-clones")
    if not scatters and not read_whole:
        assert called(after).count("split_with_sizes") == 1
        assert "slice" not in called(after)


def test_a_piece_of_another_dtype_is_not_handed_on() -> None:
    def program(x: Tensor, piece: Tensor) -> Tensor:
        return torch.slice_scatter(x, piece, 0, 0, 2)[0:2] * 2

    before = functional(program, torch.ones(4, 3), torch.full((2, 3), 1 + 2**-40, dtype=torch.float64))
    _, done = check(before, "forward-scatters")
    assert not done


def test_slices_of_both_dimensions() -> None:
    def program(x: Tensor) -> object:
        rows = x[:2] + x[2:]
        columns = x[:, :2] * x[:, 2:]
        return rows @ columns, x[1:3], x[:, :1] - x[:, 1:]

    before = functional(program, torch.arange(16.0).reshape(4, 4) * 1)
    after, done = check(before, "coalesce-splits")
    assert done == 1, str(after)  # columns overlap


# Random programs


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["view", "view", "view", "write", "write", "read", "new"]),
        *(st.integers(0, 40), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    ),
    min_size=4,
    max_size=14,
)


def check_random(steps: Sequence[object], make: Inputs) -> None:
    def program(*arguments: Tensor) -> object:
        return programs.run(steps, arguments)

    try:
        program(*make())
        before = functional(program, *make())
    except (RuntimeError, FxImportError, PassFailedException):
        return  # eager mode or we refuse it: `test/programs` checks that this is right
    for spec in PASSES:
        before, _ = check(before, spec, only="edge values")
    check(before, "forward-scatters", ("exact", "rounding"), only="edge values")


@given(steps=STEPS, arguments=st.sampled_from(programs.ARGUMENTS))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_programs(steps: Sequence[object], arguments: Inputs) -> None:
    check_random(steps, arguments)


@pytest.mark.slow
@given(steps=STEPS, arguments=st.sampled_from(programs.ARGUMENTS))
@settings(max_examples=500, deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
def test_many_random_programs(steps: Sequence[object], arguments: Inputs) -> None:
    check_random(steps, arguments)


PIECES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 5), st.integers(1, 5)), max_size=9)


def pieces_of(x: Tensor, steps: Sequence[tuple[int, int, int, int]]) -> object:
    """Slices, splits, selections and scatters of one tensor, along both dimensions; what they give is returned."""
    seen: list[Tensor] = []
    for kind, what, start, size in steps:
        d = what % 2
        stop = min(start + size, 6)
        if kind < 2:
            seen.append(x.narrow(d, start, stop - start) * 2)
        elif kind == 2:
            seen.extend(piece * 2 for piece in x.split([start, 6 - start] if what else size, d))
        elif kind == 3:
            x = torch.slice_scatter(x, x.narrow(d, start, stop - start) + size, d, start, stop)
        elif kind == 4:
            x = torch.select_scatter(x, x.select(d, start) * 3, d, start)
        else:
            seen.append(x.view(2, 3, 6)[start % 2, size % 3] + 1)
    return seen, x


@given(steps=PIECES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_pieces(steps: Sequence[tuple[int, int, int, int]]) -> None:
    check_pieces(steps)


@pytest.mark.slow
@given(steps=PIECES)
@settings(max_examples=500, deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
def test_many_random_pieces(steps: Sequence[tuple[int, int, int, int]]) -> None:
    check_pieces(steps)


def check_pieces(steps: Sequence[tuple[int, int, int, int]]) -> None:
    before = functional(lambda x: pieces_of(x * 1.5, steps), torch.arange(36.0).reshape(6, 6))
    for spec in ("forward-scatters", *PASSES, "eliminate-clones"):
        before, _ = check(before, spec, only="edge values")


# Limits


def everything(x: Tensor) -> object:
    a, b = x[:2] * 1, x[2:].clone()
    new = x.clone()
    new[:2] = a.view(2, 2, 2).view(2, 4) + 1
    first, second = new.split(2)
    return first * 2, second * 3, a * b


@pytest.mark.parametrize("name", [spec.partition("{")[0] for spec in PASSES[:3]])
def test_every_limit(name: str) -> None:
    module = functional(everything, torch.arange(16.0).reshape(4, 4))
    assert limits.check_limits(module, name, lambda: [torch.arange(16.0).reshape(4, 4)]) > 0


# Expressions that are common, and code that is dead


@torch.library.custom_op("simplification_test::bump", mutates_args=("x",))
def bump(x: Tensor, by: float) -> None:
    """Writes its operand."""
    x.add_(by)


def around_writes(x: Tensor) -> object:
    """Equal expressions with writes between them, random numbers, and custom operators that write."""
    a = x * 2
    x.add_(1)
    b = x * 2
    row = x[0]
    c = row.sum()
    x[0] = 0
    d = row.sum()
    bump(x, 2.0)
    torch.rand_like(x)
    e = torch.rand_like(x)
    bump(x, 2.0)
    return a, b, c, d, e, torch.rand_like(x), x * 2, x.t() * 2, (x * 2).t()


SPECS = ["functionalize", "alias-outputs,functionalize", "functionalize,lower,eliminate-clones"]


@pytest.mark.parametrize("spec", SPECS)
def test_common_expressions_around_writes(spec: str) -> None:
    module = functional(around_writes, torch.arange(6.0).reshape(2, 3), spec=spec)
    for name in ("cse", "dce"):
        module, _ = check(module, name)
    assert called(module).count("rand_like") == 3
    assert sum(name.startswith("bump") for name in called(module)) == 2


def test_donated_values_are_kept_for_others() -> None:
    def program(x: Tensor, y: Tensor) -> object:
        first = x * 2
        normed, total = ir.ops.fused_add_rms_norm.maybe_inplace(first, y * 1, None, 1e-5)
        return normed, total, x * 2

    module = functional(program, torch.randn(2, 4), torch.randn(2, 4))
    assert "donated" in str(module)
    for name in ("eliminate-no-ops", "cse", "dce", "lower", "eliminate-clones"):
        module, _ = check(module, name)
