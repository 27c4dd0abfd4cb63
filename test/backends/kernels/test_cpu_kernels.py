"""The C++ kernels against the native definitions.

Bit for bit wherever the order of a sum cannot matter: rotary embedding, new residuals, and norms of small integers,
whose squares add up exactly in any order. Elsewhere within the bounds that `norm_error` and `SILU_ERROR` derive. The
same checks are run on kernels with planted faults, and have to find every one.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import vllm_ir.backends.kernels  # registers the provider
from vllm_ir.frontends.ops import ops

EPSILON = 1e-5
ROUNDOFF = 2.0**-24
"""Half a unit in the last place of float32, as a relative error."""
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 1), (16,), (3, 7), (2, 3, 33), (5, 64), (2, 1, 2, 100), (3, 257), (2, 4096), (0, 8), (3, 0), (2, 0, 5)]

# exp is within 1 ulp, 2 roundoffs, in torch's vectors and in the C library, and 1 + exp(-x) weakens a relative error of
# it; then the sum, the quotient and the product round once each: 5 on either side.
SILU_ERROR = 10 * ROUNDOFF


def kernel_sum_error(size: int) -> float:
    """Relative error of the kernel's mean of squares: the longest chain of its sums, for vectors of 4 or more."""
    return (size / 16 + 8) * ROUNDOFF


def norm_error(size: int) -> float:
    """How far a float32 result of the kernel and one of the native definition may be apart, relatively.

    The native sum may be in any order, so its error is that of `size` roundings. Division by the size, and epsilon, round
    on either side; the square root halves what has gathered; root, reciprocal and two products round on either side.
    """
    return (kernel_sum_error(size) + (size + 4) * ROUNDOFF) / 2 + 8 * ROUNDOFF


@dataclass(frozen=True)
class Case:
    """Arguments of an op, and what results of an implementation may differ by."""

    args: tuple[object, ...]
    errors: tuple[float, ...] | None = None
    """For each result, the relative error before it is rounded to a 16-bit dtype; None: bit for bit."""
    exact: Callable[[], Tensor] | None = None
    """The first result in float64, and how far a float32 result may be from it."""
    exact_error: float = 0.0


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def copies(args: Sequence[object]) -> list[object]:
    return [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]


def as_tuple(results: object) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else tuple(results)


def assert_close(got: Tensor, want: Tensor, error: float | None) -> None:
    """Compare a result with the native definition's.

    16-bit results may have been rounded twice, and an error can move each rounding by one unit. It does so only where
    the boundary between two numbers happens to lie inside it: for a share of error / spacing of the elements.
    """
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if error is None:
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        return
    info = torch.finfo(want.dtype)
    spacing = 0.0 if want.dtype is torch.float32 else info.eps
    tiny = 8 * info.smallest_normal * info.eps
    torch.testing.assert_close(got.double(), want.double(), rtol=error + 2 * spacing, atol=tiny, equal_nan=True)
    if spacing:
        differing = int((got != want).logical_and_(~want.isnan()).sum())
        assert differing <= 2 + 4 * error / (spacing / 2) * want.numel(), f"{differing} of {want.numel()} differ"


def check(name: str, implementation: Callable[..., object], cases: Iterator[Case]) -> None:
    """Run an implementation of an op on copies of every case's arguments; AssertionError where it disagrees."""
    for case in cases:
        want = as_tuple(ops[name].native(*case.args))
        got = as_tuple(implementation(*copies(case.args)))
        errors = case.errors or (None,) * len(want)
        for left, right, error in zip(got, want, errors, strict=True):
            assert_close(left, right, error)
        if case.exact is not None:
            torch.testing.assert_close(got[0].double(), case.exact(), rtol=case.exact_error, atol=0)


def weights(size: int, dtype: torch.dtype, make: Callable[..., Tensor]) -> list[Tensor | None]:
    others = [make(size, dtype=other, seed=2) for other in FLOATS if other is not dtype]
    return [None, make(size, dtype=dtype, seed=2), *others]


def norm_cases(fused: bool, dtype: torch.dtype) -> Iterator[Case]:
    for shape in SHAPES:
        size = shape[-1]
        for make in (integers, random):
            x = make(*shape, dtype=dtype)
            inputs = (x, make(*shape, dtype=dtype, seed=1)) if fused else (x,)
            for weight in weights(size, dtype, make):
                if fused and weight is not None and torch.promote_types(dtype, weight.dtype) is not dtype:
                    continue
                for measured in {None, *(part for part in (1, size // 2, size) if 1 <= part <= size)}:
                    args = (*inputs, weight, EPSILON, measured)
                    yield norm_case(args, fused, None if make is integers else norm_error(size))


def norm_case(args: tuple[object, ...], fused: bool, error: float | None) -> Case:
    if error is None:
        return Case(args)
    errors = (error, None) if fused else (error,)
    x, *_, weight, _, measured = args
    if x.dtype is not torch.float32 or x.numel() == 0:
        return Case(args, errors)

    def exact() -> Tensor:
        total = (x + args[1]).double() if fused else x.double()
        scale = (total[..., :measured].pow(2).mean(-1, keepdim=True) + EPSILON).rsqrt()
        return total * scale * (1.0 if weight is None else weight.double())

    # Beside the sum: division, epsilon (both halved), the float32 epsilon itself, root, reciprocal and two products.
    return Case(args, errors, exact, kernel_sum_error(measured or x.shape[-1]) / 2 + 6 * ROUNDOFF)


def silu_cases(dtype: torch.dtype) -> Iterator[Case]:
    for shape in SHAPES:
        x = 3 * random(*shape[:-1], 2 * shape[-1])
        yield Case((x.to(dtype),), (SILU_ERROR,))
    special = torch.tensor(
        [-200.0, -100.0, -80.0, -20.0, -0.0, 0.0, 20.0, 3e4, float("inf"), -float("inf"), float("nan")]
    )
    yield Case((torch.stack((special, torch.linspace(1, 2, 11))).flatten().to(dtype),), (SILU_ERROR,))


def rotary_cases(dtype: torch.dtype) -> Iterator[Case]:
    for head_size, rotary_dim in ((2, 2), (6, 4), (16, 16), (64, 64), (80, 26), (128, 128), (256, 70)):
        for table_dtype in FLOATS:
            table = random(50, rotary_dim, dtype=table_dtype, seed=3)
            for tokens in ((7,), (2, 3), ()):
                positions = torch.randint(0, 50, tokens, generator=torch.Generator().manual_seed(4))
                query, key = random(*tokens, 3 * head_size, dtype=dtype), random(*tokens, 1, head_size, seed=1)
                for neox in (True, False):
                    for given in (None, rotary_dim):
                        yield Case((positions, query, key.to(dtype), head_size, table, neox, given))
                yield Case((positions.int(), query, key, head_size, table, True, None))
    # More tokens than one thread gets, and heads that a token has in several rows.
    query, key = random(600, 256, dtype=dtype), random(600, 128, dtype=dtype, seed=1)
    yield Case((torch.arange(600) % 50, query, key, 64, random(50, 64, seed=3), True, None))
    yield Case((torch.arange(300) % 50, query, key, 64, random(50, 64, seed=3), True, None))


CASES: dict[str, Callable[[torch.dtype], Iterator[Case]]] = {
    "rms_norm": lambda dtype: norm_cases(False, dtype),
    "fused_add_rms_norm": lambda dtype: norm_cases(True, dtype),
    "silu_and_mul": silu_cases,
    "rotary_embedding": rotary_cases,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_native_definitions(name: str, dtype: torch.dtype):
    impl = ops[name].impls["cpu"]
    cases = list(CASES[name](dtype))
    for case in cases:
        assert impl.rejection(case.args) is None
    check(name, impl.fn, iter(cases))


# --- faults that the checks must find ----------------------------------------------------------------------------------


def faulty_norm(x, weight, epsilon, measured=None, *, fault=""):
    values = x.float()
    part = values[..., :measured] if fault != "mean over all" else values
    mean = part.pow(2).mean(-1, keepdim=True)
    scale = 1 / (mean.sqrt() + epsilon) if fault == "epsilon outside the root" else (mean + epsilon).rsqrt()
    if fault == "no epsilon":
        scale = mean.rsqrt()
    if fault == "approximate root":
        scale = scale * (1 + 2.0**-12)
    if fault == "half precision root":
        scale = scale.half().float()
    normed = values * scale
    if fault != "rounded once":
        normed = normed.to(x.dtype)
    if fault == "rounded down" and x.dtype is torch.bfloat16:
        normed = (values * scale).view(torch.int32).bitwise_and(-65536).view(torch.float32).to(x.dtype)
    if fault == "last element left out" and x.shape[-1] > 32:
        normed[..., -1] = x[..., -1]
    if weight is None:
        return normed.to(x.dtype)
    result = (normed * weight).to(torch.promote_types(x.dtype, weight.dtype))
    return result.to(x.dtype) if fault == "result not promoted" else result


def faulty_fused(x, residual, weight, epsilon, measured=None, *, fault=""):
    total = x.float() + residual.float()
    if fault == "sum rounded before the norm":
        total = total.to(x.dtype).float()
    normed, new = ops.fused_add_rms_norm.native(total, torch.zeros_like(total), None, epsilon, measured)
    normed = normed.to(x.dtype) if weight is None else normed.to(x.dtype) * weight
    return normed, (residual if fault == "residual left" else new.to(x.dtype))


def faulty_silu(x, *, fault=""):
    gate, up = x.chunk(2, -1)
    if fault == "rounded once":
        return (F.silu(gate.float()) * up.float()).to(x.dtype)
    if fault == "halves swapped":
        return F.silu(up) * gate
    if fault == "approximate exp":
        return (gate.float() / (1 + (-gate.float()).exp() * (1 + 2.0**-12))).to(x.dtype) * up
    return (F.gelu(gate) if fault == "gelu" else F.silu(gate)) * up


def faulty_rotary(positions, query, key, head_size, table, neox, rotary_dim=None, *, fault=""):
    if fault == "sign":
        cos, sin = table.chunk(2, -1)
        table = torch.cat((cos, -sin), -1)
    if fault == "style":
        neox = not neox
    if fault == "position":
        positions = (positions + 1) % table.shape[0]
    if fault == "wide arithmetic":
        results = ops.rotary_embedding.native(positions, query.float(), key.float(), head_size, table, neox, rotary_dim)
        return results[0].to(query.dtype), results[1].to(key.dtype)
    results = ops.rotary_embedding.native(positions, query, key, head_size, table, neox, rotary_dim)
    return (results[0], key) if fault == "key left" else results


FAULTS = [
    *(
        ("rms_norm", faulty_norm, fault)
        for fault in (
            "mean over all",
            "epsilon outside the root",
            "no epsilon",
            "approximate root",
            "half precision root",
            "rounded once",
            "rounded down",
            "last element left out",
            "result not promoted",
        )
    ),
    ("fused_add_rms_norm", faulty_fused, "sum rounded before the norm"),
    ("fused_add_rms_norm", faulty_fused, "residual left"),
    *(("silu_and_mul", faulty_silu, fault) for fault in ("rounded once", "halves swapped", "approximate exp", "gelu")),
    *(
        ("rotary_embedding", faulty_rotary, fault)
        for fault in ("sign", "style", "position", "wide arithmetic", "key left")
    ),
]


@pytest.mark.parametrize(
    ("name", "implementation", "fault"), FAULTS, ids=lambda part: part if type(part) is str else ""
)
def test_a_planted_fault_is_found(name: str, implementation: Callable[..., object], fault: str):
    found = 0
    for dtype in FLOATS:
        try:
            check(name, lambda *args: implementation(*args, fault=fault), CASES[name](dtype))
        except AssertionError:
            found += 1
    assert found > 0


@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        ("rms_norm", faulty_norm),
        ("fused_add_rms_norm", faulty_fused),
        ("silu_and_mul", faulty_silu),
        ("rotary_embedding", faulty_rotary),
    ],
    ids=lambda part: part if type(part) is str else "",
)
def test_without_a_fault_the_same_implementation_passes(name: str, implementation: Callable[..., object]):
    for dtype in FLOATS:
        check(name, implementation, CASES[name](dtype))


# --- layouts -------------------------------------------------------------------------------------------------------------


def columns(x: Tensor) -> Tensor:
    return F.pad(x, (3, 5), value=float("nan"))[..., 3:-5]


LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    # name: (a tensor of the same shape and another layout, whether the provider takes it)
    "contiguous": (lambda x: x, True),
    "columns of a wider tensor": (columns, True),
    "every second row": (lambda x: x.repeat_interleave(2, 1)[:, ::2], True),
    "every second matrix": (lambda x: x.repeat_interleave(2, 0)[::2], True),
    "repeated rows": (lambda x: x[:, :1].expand(x.shape), True),
    "repeated matrices": (lambda x: x[:1].expand(x.shape), True),
    "overlapping rows": (lambda x: x.flatten().as_strided(x.shape, (x.shape[1] * x.shape[2], 4, 1)), True),
    "rows in another order": (lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), False),
    "transposed": (lambda x: x.mT.contiguous().mT, False),
    "every second column": (lambda x: x.repeat_interleave(2, -1)[..., ::2], False),
    "repeated columns": (lambda x: x[..., :1].expand(x.shape), False),
}


def layout_arguments(name: str, change: Callable[[Tensor], Tensor], dtype: torch.dtype) -> tuple[object, ...]:
    x, residual = change(integers(3, 4, 48, dtype=dtype)), change(integers(3, 4, 48, dtype=dtype, seed=1))
    weight = integers(96, dtype=dtype, seed=2)[::2]
    table = random(20, 24, seed=3)[:, :12]
    positions = torch.arange(24)[::2].reshape(3, 4) % 20
    return {
        "rms_norm": (x, weight, EPSILON),
        "fused_add_rms_norm": (x, residual, weight, EPSILON),
        "silu_and_mul": (x,),
        "rotary_embedding": (positions, x, residual, 16, table, True),
    }[name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_layouts(name: str, layout: str, dtype: torch.dtype):
    change, taken = LAYOUTS[layout]
    op = ops[name]
    args = layout_arguments(name, change, dtype)
    want = as_tuple(op.native(*args))
    error = SILU_ERROR if name == "silu_and_mul" else None
    with op.set_priority(["cpu"]):
        assert (op.dispatch(*args).provider == "cpu") == taken
        before = copies(args)
        for got, right in zip(as_tuple(op(*args)), want, strict=True):
            assert_close(got, right, error)
            assert got.stride() == right.stride(), "the layout is not the one that was traced"
        assert all(torch.equal(a, b) for a, b in zip(args, before, strict=True) if isinstance(a, Tensor))
        for got, right in zip(as_tuple(op.maybe_inplace(*args)), want, strict=True):
            assert_close(got, right, error)


@pytest.mark.parametrize(
    "layout", [name for name, (_, taken) in LAYOUTS.items() if not taken and "repeated" not in name]
)
@pytest.mark.parametrize("name", CASES)
def test_operators_take_layouts_that_the_provider_refuses(name: str, layout: str):
    args = layout_arguments(name, LAYOUTS[layout][0], torch.float32)
    want = as_tuple(ops[name].native(*args))
    got = as_tuple(ops[name].impls["cpu"].fn(*args))
    for left, right in zip(got, want, strict=True):
        assert_close(left, right, SILU_ERROR if name == "silu_and_mul" else None)


# --- arguments that are left to the native definition ----------------------------------------------------------------------

X, HALF_X, TABLE = random(4, 8), random(4, 8, dtype=torch.bfloat16), random(10, 8)
REFUSED: list[tuple[str, str, tuple[object, ...]]] = [
    ("rms_norm", "float64", (X.double(), None, EPSILON)),
    ("rms_norm", "integers", (X.long(), None, EPSILON)),
    ("rms_norm", "another device", (X.to("meta"), None, EPSILON)),
    ("rms_norm", "weight on another device", (X, random(8).to("meta"), EPSILON)),
    ("rms_norm", "no dimension", (torch.tensor(1.0), None, EPSILON)),
    ("rms_norm", "sparse", (X.to_sparse(), None, EPSILON)),
    ("rms_norm", "float64 weight", (X, random(8).double(), EPSILON)),
    ("rms_norm", "weight too short", (X, random(7), EPSILON)),
    ("rms_norm", "weight with two dimensions", (X, random(1, 8), EPSILON)),
    ("rms_norm", "variance_size 0", (X, None, EPSILON, 0)),
    ("rms_norm", "variance_size 9", (X, None, EPSILON, 9)),
    ("fused_add_rms_norm", "weight that promotes", (HALF_X, HALF_X, random(8), EPSILON)),
    ("fused_add_rms_norm", "residual of another dtype", (HALF_X, X, None, EPSILON)),
    ("fused_add_rms_norm", "residual of another shape", (X, random(1, 8), None, EPSILON)),
    ("fused_add_rms_norm", "residual of another rank", (X, random(8), None, EPSILON)),
    ("silu_and_mul", "odd", (random(3, 7),)),
    ("silu_and_mul", "float64", (X.double(),)),
    ("rotary_embedding", "no tokens", (torch.arange(0), X[:0], X[:0], 8, TABLE, True)),
    ("rotary_embedding", "float positions", (torch.arange(4.0), X, X, 8, TABLE, True)),
    ("rotary_embedding", "int16 positions", (torch.arange(4).short(), X, X, 8, TABLE, True)),
    ("rotary_embedding", "float64 table", (torch.arange(4), X, X, 8, TABLE.double(), True)),
    ("rotary_embedding", "float64 key", (torch.arange(4), X, X.double(), 8, TABLE, True)),
    ("rotary_embedding", "odd table", (torch.arange(4), X, X, 8, TABLE[:, :3], True)),
    ("rotary_embedding", "table wider than a head", (torch.arange(4), X, X, 4, TABLE, True)),
    ("rotary_embedding", "part of a head", (torch.arange(4), X, random(4, 12), 8, TABLE, True)),
    ("rotary_embedding", "another rotary_dim", (torch.arange(4), X, X, 8, TABLE, True, 4)),
    ("rotary_embedding", "tokens that do not divide", (torch.arange(3), X, X, 8, TABLE, True)),
]


@pytest.mark.parametrize(("name", "what", "args"), REFUSED, ids=lambda part: part if type(part) is str else "")
def test_refused_arguments(name: str, what: str, args: tuple[object, ...]):
    op = ops[name]
    impl, rejected = op.select(args, ["cpu"])
    assert impl.provider == "native"
    assert [provider for provider, _ in rejected] == ["cpu"]


def test_errors_come_from_the_native_definition():
    with (
        ops.rms_norm.set_priority(["cpu"]),
        pytest.raises(ValueError, match=r"^vllm_ir.rms_norm: variance_size 9 is not"),
    ):
        ops.rms_norm(X, None, EPSILON, 9)


INVALID: list[tuple[Callable[[], object], type[Exception], str]] = [
    (
        lambda: torch.ops.vllm_ir_cpu.rms_norm(X, random(7), EPSILON),
        RuntimeError,
        r"rms_norm: weight must have shape \[8\].*got \[7\]",
    ),
    (lambda: torch.ops.vllm_ir_cpu.rms_norm(X, None, EPSILON, 9), RuntimeError, r"variance_size 9 is not in \[1, 8\]"),
    (lambda: torch.ops.vllm_ir_cpu.rms_norm(X.double(), None, EPSILON), RuntimeError, "x must be float32.*got Double"),
    (lambda: torch.ops.vllm_ir_cpu.silu_and_mul(random(7)), RuntimeError, r"must be even, got shape \[7\]"),
    (
        lambda: torch.ops.vllm_ir_cpu.fused_add_rms_norm_(X.clone(), random(4, 7), None, EPSILON),
        RuntimeError,
        r"residual must be like x, Float of shape \[4, 8\]",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.fused_add_rms_norm_(HALF_X.clone(), HALF_X.clone(), random(8), EPSILON),
        RuntimeError,
        "with this weight the result is Float, which x, of BFloat16, cannot hold",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.fused_add_rms_norm_(X, X, None, EPSILON),
        RuntimeError,
        "unsupported operation.*same memory location|refers? to",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.rotary_embedding_(torch.arange(3), X.clone(), X.clone(), 8, TABLE, True),
        RuntimeError,
        r"query must hold whole heads of 8 elements for each of 3 tokens.*\[4, 8\]",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.rms_norm(X.to_sparse(), None, EPSILON),
        NotImplementedError,
        "vllm_ir_cpu::rms_norm.*takes dense tensors on the cpu, got one on cpu with layout torch.sparse_coo",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), INVALID)
def test_operators_refuse_what_they_cannot_do(call: Callable[[], object], kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("position", [-1, 10])
def test_a_wrong_position_is_an_error_before_anything_is_written(position: int):
    query, key = X.clone(), X.clone()
    positions = torch.tensor([0, 1, 2, position])
    with pytest.raises(IndexError, match=f"position {position} is not a row of cos_sin_cache, which has 10"):
        torch.ops.vllm_ir_cpu.rotary_embedding_(positions, query, key, 8, TABLE, True)
    assert torch.equal(query, X)
    assert torch.equal(key, X)


# --- memory ------------------------------------------------------------------------------------------------------------------


def test_donated_activations_are_overwritten_and_returned():
    x, residual, weight = integers(4, 8), integers(4, 8, seed=1), integers(8, seed=2)
    want = ops.fused_add_rms_norm.native(x, residual, weight, EPSILON)
    with ops.fused_add_rms_norm.set_priority(["cpu"]):
        got = ops.fused_add_rms_norm.maybe_inplace(x, residual, weight, EPSILON)
    assert (got[0].data_ptr(), got[1].data_ptr()) == (x.data_ptr(), residual.data_ptr())
    assert all(map(torch.equal, (x, residual), want))


def test_pieces_of_a_projection_are_rotated_where_they_lie():
    projection = random(5, 16 + 8 + 8)
    before = projection.clone()
    query, key, _ = projection.split([16, 8, 8], -1)
    want = ops.rotary_embedding.native(torch.arange(5), query, key, 8, TABLE, True)
    with ops.rotary_embedding.set_priority(["cpu"]):
        got = ops.rotary_embedding.maybe_inplace(torch.arange(5), query, key, 8, TABLE, True)
    assert got[0].data_ptr() == query.data_ptr()
    assert torch.equal(projection, torch.cat((*want, before[:, 24:]), -1))


def test_an_activation_given_twice():
    x = integers(4, 8)
    want = ops.fused_add_rms_norm.native(x, x, None, EPSILON)
    with ops.fused_add_rms_norm.set_priority(["cpu"]):
        got = ops.fused_add_rms_norm.maybe_inplace(x, x, None, EPSILON)
    assert all(map(torch.equal, got, want))


def test_the_number_of_threads_does_not_matter():
    x, residual, weight = random(300, 700), random(300, 700, seed=1), random(700, seed=2)
    fn = ops.fused_add_rms_norm.impls["cpu"].fn
    threads = torch.get_num_threads()
    results: list[tuple[Tensor, ...]] = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(as_tuple(fn(*copies((x, residual, weight, EPSILON)))))
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, *results))


def test_gradients_are_the_native_ones():
    x, weight = random(3, 8).requires_grad_(), random(8).requires_grad_()
    with ops.rms_norm.set_priority(["cpu"]):
        ops.rms_norm(x, weight, EPSILON).sum().backward()
    got = (x.grad, weight.grad)
    x.grad = weight.grad = None
    ops.rms_norm(x, weight, EPSILON).sum().backward()
    assert all(map(torch.equal, got, (x.grad, weight.grad)))


# --- as torch operators ----------------------------------------------------------------------------------------------------------

OPERATOR_ARGUMENTS: list[tuple[str, tuple[object, ...]]] = [
    ("rms_norm", (HALF_X, random(8), EPSILON)),
    ("rms_norm", (random(2, 3, 8).transpose(0, 1), None, EPSILON, 5)),
    ("rms_norm", (columns(random(2, 3, 8)), None, EPSILON)),
    ("fused_add_rms_norm_", (X.clone(), random(4, 8), random(8), EPSILON)),
    ("silu_and_mul", (columns(random(2, 3, 8)).transpose(0, 1),)),
    ("rotary_embedding_", (torch.arange(4), X.clone(), random(4, 16), 8, TABLE, False)),
]


@pytest.mark.parametrize(("name", "args"), OPERATOR_ARGUMENTS, ids=lambda part: part if type(part) is str else "")
def test_schemas_and_fake_kernels_tell_the_truth(name: str, args: tuple[object, ...]):
    operator = getattr(torch.ops.vllm_ir_cpu, name).default
    torch.library.opcheck(operator, args)


def test_only_what_a_kernel_writes_is_mutable():
    def written(name: str) -> list[str]:
        schema = getattr(torch.ops.vllm_ir_cpu, name).default._schema
        return [arg.name for arg in schema.arguments if arg.alias_info is not None and arg.alias_info.is_write]

    assert written("rms_norm") == written("silu_and_mul") == []
    assert written("fused_add_rms_norm_") == ["x", "residual"]
    assert written("rotary_embedding_") == ["query", "key"]


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_on_processors_with_shorter_vectors(capability: str):
    if capability == "avx2" and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this processor has no AVX2")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", str(Path(__file__))],
        env=os.environ | {"ATEN_CPU_CAPABILITY": capability},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
