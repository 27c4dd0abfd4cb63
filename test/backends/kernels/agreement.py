"""What it means for an implementation to agree with a native definition, and the arguments to try.

Bit for bit wherever the order of a sum cannot matter: rotary embedding, new residuals, quantisation, and norms of small
integers, whose squares add up exactly in any order. Elsewhere within the bounds that `norm_error`, `SILU_ERROR` and
`gelu_error` derive.
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

# Of 1 + f in gelu, absolute. f = erf: torch's vectors have the formula 7.1.26 of Abramowitz and Stegun, within 1.5e-7
# or 2.6 roundoffs, and oneDNN, which computes single rows of the native definition, has another polynomial; for their
# evaluation 10, where a scan over [-12, 12] finds less than 8. f = tanh: 2 ulp, 4 roundoffs. The argument has at most 7
# roundoffs, which change either f by less than half of that. The sum is up to 2, so its rounding is 2. All that is
# halved; then gelu and the product round once each; on either side.
GELU_ERROR = 2 * ((2.6 + 10 + 3.5 + 2) / 2 + 2) * ROUNDOFF


def gelu_error(x: Tensor) -> Tensor:
    """How far results of `gelu_and_mul` may be apart before 16-bit rounding: near -1, 1 + f cancels, and x remains."""
    gate, up = x.double().chunk(2, -1)
    return GELU_ERROR * (gate * up).abs()


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
    errors: tuple[float | Tensor | None, ...] | None = None
    """For each result, the error before it is rounded to a 16-bit dtype; None: bit for bit.

    A number is relative to the result; a tensor has the absolute error of each element.
    """
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


def assert_close(got: Tensor, want: Tensor, error: float | Tensor | None) -> None:
    """Compare a result with the native definition's.

    16-bit results may have been rounded twice, and an error can move each rounding by one unit. It does so only where
    the boundary between two numbers happens to lie inside it: for a share of error / spacing of the elements.
    """
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if error is None:
        torch.testing.assert_close(comparable(got), comparable(want), rtol=0, atol=0, equal_nan=True)
        return
    info = torch.finfo(want.dtype)
    spacing = 0.0 if want.dtype is torch.float32 else info.eps
    tiny = 8 * info.smallest_normal * info.eps
    left, right = got.double(), want.double()
    allowed = error if isinstance(error, Tensor) else error * right.abs()
    equal = (left == right) | (left.isnan() & right.isnan())
    close = equal | (
        right.isfinite() & ((left - right).abs() <= allowed + 2 * spacing * (right.abs() + allowed) + tiny)
    )
    assert close.all(), f"{left[~close][:5]} instead of {right[~close][:5]}"
    if spacing:
        moved = (4 * allowed / (spacing / 2 * right.abs())).clamp(max=1.0)[right.isfinite() & (right != 0)].sum()
        assert int((~equal).sum()) <= 2 + moved, f"{int((~equal).sum())} of {want.numel()} differ"


def comparable(tensor: Tensor) -> Tensor:
    """The tensor itself; the bits of an 8-bit float, signs of zeros included, but of what is not a number only that."""
    if tensor.dtype is not torch.float8_e4m3fn:
        return tensor
    return tensor.view(torch.uint8).masked_fill(tensor.float().isnan(), 0x7F)


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


def gelu_cases(dtype: torch.dtype) -> Iterator[Case]:
    # Single rows, which oneDNN computes, are among the shapes. Its gelu of infinity is not a number, so here are two.
    special = torch.tensor([-200.0, -80.0, -14.0, -6.0, -5.5, -1e-20, -0.0, 0.0, 5.5, 3e4, float("inf"), float("nan")])
    inputs = [3 * random(*shape[:-1], 2 * shape[-1]) for shape in SHAPES]
    inputs.append(torch.cat((special.repeat(2, 1), torch.linspace(1, 2, 24).reshape(2, 12)), -1))
    for x in inputs:
        x = x.to(dtype)
        for args in ((x,), (x, "none"), (x, "tanh")):
            yield Case(args, (gelu_error(x),))


def awkward(dtype: torch.dtype) -> Tensor:
    """Elements `[256, 257]` of every kind: all of 16 bits, of float32 those near a change of result."""
    patterns = torch.arange(-(2**15), 2**15)
    if dtype is not torch.float32:
        elements = patterns.to(torch.int16).view(dtype)
    else:
        fp8 = torch.arange(-128, 128).to(torch.int8).view(torch.float8_e4m3fn).float()
        numbers = torch.cat((fp8, (fp8[1:] + fp8[:-1]) / 2, torch.arange(-130, 131) / 1, torch.arange(-130, 131) + 0.5))
        infinity = torch.tensor(float("inf"))
        near = torch.cat((numbers, numbers.nextafter(infinity), numbers.nextafter(-infinity)))
        spread = (patterns * 65537 + 40503 * patterns % 65521).to(torch.int32).view(torch.float32)
        elements = torch.cat((near, spread))[: 2**16]
    return torch.cat((elements.reshape(256, 256), random(256, 1, dtype=dtype)), -1)


def extremes(dtype: torch.dtype) -> Tensor:
    """Rows `[rows, 48]` whose greatest magnitude is unusual; the rest is ordinary, and as small as leaves it that."""
    info = torch.finfo(dtype)
    greatest = [
        0.0,
        info.tiny * info.eps,
        info.tiny,
        1e-12,
        1e-3,
        447.0,
        448.0,
        449.0,
        3.5 * (1 + info.eps),
        3.5,
        info.max,
    ]
    rows = [torch.cat((value * random(47, seed=7).clamp(-1, 1), torch.tensor([-value]))) for value in greatest]
    for value in (float("inf"), -float("inf"), float("nan")):
        rows.append(torch.cat((random(40), torch.tensor([value]), torch.zeros(7))))
    return torch.stack((*rows, torch.zeros(48))).to(dtype)


def static_quant_cases(dtype: torch.dtype) -> Iterator[Case]:
    inputs = [3 * random(*shape) for shape in SHAPES] + [awkward(dtype), extremes(dtype)]
    for x in inputs:
        for scale in (1.0, 0.013, 7e-38, 1e38):
            yield Case((x.to(dtype), torch.tensor([scale])))
    if dtype is torch.float32:
        # Near ties of the quotients, where a division and a product with the reciprocal part.
        yield Case((awkward(dtype) * 0.013, torch.tensor([0.013])))
    for scale in (
        torch.tensor(0.02),
        torch.full((1, 1, 1), 0.02),
        *torch.tensor([[0.0], [-1.0], [torch.nan], [torch.inf]]),
    ):
        yield Case((awkward(dtype), scale))


def token_quant_cases(dtype: torch.dtype, bounds: bool) -> Iterator[Case]:
    shapes = [shape for shape in (*SHAPES, (0, 8), (2, 0, 5), (600, 96)) if shape[-1] > 0]
    for x in [3 * random(*shape) for shape in shapes] + [awkward(dtype), extremes(dtype)]:
        yield Case((x.to(dtype),))
        for bound in (1.5, 1e-9, 1e30, float("nan")) if bounds else ():
            yield Case((x.to(dtype), torch.tensor([bound])))


def group_quant_cases(dtype: torch.dtype, powers: bool) -> Iterator[Case]:
    shapes = (*SHAPES, (600, 96))
    for x in [3 * random(*shape) for shape in shapes] + [awkward(dtype)[:, :256], awkward(dtype), extremes(dtype)]:
        size = x.shape[-1]
        for group_size in {max(size, 1), 1, *(part for part in (3, 8, 20, 32, 48, 64, 128) if size % part == 0)}:
            for options in ((), (False,), (True,), (False, 1e-2), (True, 1e-41)) if powers else ((), (1e-2,), (1e-41,)):
                yield Case((x.to(dtype), group_size, *options))


CASES: dict[str, Callable[[torch.dtype], Iterator[Case]]] = {
    "rms_norm": lambda dtype: norm_cases(False, dtype),
    "fused_add_rms_norm": lambda dtype: norm_cases(True, dtype),
    "silu_and_mul": silu_cases,
    "gelu_and_mul": gelu_cases,
    "rotary_embedding": rotary_cases,
    "static_scaled_fp8_quant": static_quant_cases,
    "static_scaled_int8_quant": static_quant_cases,
    "dynamic_per_token_scaled_fp8_quant": lambda dtype: token_quant_cases(dtype, True),
    "dynamic_per_token_scaled_int8_quant": lambda dtype: token_quant_cases(dtype, False),
    "per_token_group_fp8_quant": lambda dtype: group_quant_cases(dtype, True),
    "per_token_group_int8_quant": lambda dtype: group_quant_cases(dtype, False),
}
