"""What it means for an implementation to agree with a native definition, and the arguments to try.

Bit for bit wherever the order of a sum cannot matter: rotary embedding, new residuals, and norms of small integers,
whose squares add up exactly in any order. Elsewhere within the bounds that `norm_error` and `SILU_ERROR` derive.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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

    The native sum may be in any order, so its error is that of `size` roundings. Division by the size, and epsilon,
    round on either side; the square root halves what has gathered; root, reciprocal and two products round on either
    side.
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
