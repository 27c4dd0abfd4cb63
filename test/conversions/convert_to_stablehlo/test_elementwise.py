"""Elementwise operators, each with all dtypes in one program, against eager."""

import math
from collections.abc import Callable

import pytest
import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -7.25, 100.0, 1e-3, math.inf, -math.inf, math.nan]


def values(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Numbers of all kinds, 3 x 11 of them."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (3, 11), generator=generator).bool()
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -20
        return torch.randint(low, 20, (3, 11), generator=generator).to(dtype)
    numbers = torch.randn(33, generator=generator) * 4
    special = torch.tensor(SPECIAL)
    numbers[: len(SPECIAL)] = special[torch.randperm(len(SPECIAL), generator=generator)] if seed else special
    return numbers.reshape(3, 11).to(dtype)


def nonzero(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor == 0, torch.ones_like(tensor), tensor)


EXACT_UNARY: dict[str, tuple[Callable[[torch.Tensor], object], tuple[torch.dtype, ...]]] = {
    "abs": (torch.abs, (*FLOATS, *INTEGERS)),
    "neg": (torch.neg, (*FLOATS, *INTEGERS)),
    "ceil": (torch.ceil, (*FLOATS, torch.int32)),
    "floor": (torch.floor, (*FLOATS, torch.int32)),
    "trunc": (torch.trunc, (*FLOATS, torch.int32)),
    "round": (torch.round, (*FLOATS, torch.int32)),
    "sign": (torch.sign, (*FLOATS, *INTEGERS, torch.bool)),
    "signbit": (torch.signbit, (*FLOATS, *INTEGERS)),
    "reciprocal": (torch.reciprocal, FLOATS),
    "relu": (torch.relu, (*FLOATS, *INTEGERS)),
    "isnan": (torch.isnan, (*FLOATS, torch.int32)),
    "isinf": (torch.isinf, (*FLOATS, torch.int32)),
    "isfinite": (torch.isfinite, (*FLOATS, torch.int32)),
    "logical_not": (torch.logical_not, (*FLOATS, *INTEGERS, torch.bool)),
    "bitwise_not": (torch.bitwise_not, (*INTEGERS, torch.bool)),
    "square": (torch.square, (*FLOATS, *INTEGERS)),
    "clamp": (lambda x: (x.clamp(-1, 3), x.clamp(min=2), x.clamp(max=1)), (*FLOATS, torch.int32)),
    "leaky_relu": (lambda x: torch.nn.functional.leaky_relu(x, 0.125), FLOATS),
    "hardtanh": (torch.nn.functional.hardtanh, FLOATS),
    "frac": (torch.frac, FLOATS),
    "nan_to_num": (torch.nan_to_num, FLOATS),
    "scalars": (lambda x: (x + 2, x - 3, 2 - x, x * 2, x + 0.5, x / 2, x == 1, x < 2, x <= 1), (*FLOATS, *INTEGERS)),
    "scalar powers": (lambda x: (x**2, x**3, x**0, x**1), (*FLOATS, *INTEGERS)),
    "masked_fill": (lambda x: (x.masked_fill(x > 1, 3), torch.where(x > 0, x, 1), torch.where(x > 0, 1.0, x)), FLOATS),
}


@pytest.mark.parametrize("name", EXACT_UNARY)
def test_exact_unary(name: str, xla) -> None:
    function, dtypes = EXACT_UNARY[name]
    xla.compare(lambda *xs: [function(x) for x in xs], *(values(dtype) for dtype in dtypes))


ROUNDED_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1"),
        *("log", "log10", "log1p", "log2", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
    )
} | {
    "gelu": torch.nn.functional.gelu,
    "gelu tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "elu": torch.nn.functional.elu,
    "selu": torch.nn.functional.selu,
    "celu": torch.nn.functional.celu,
    "mish": torch.nn.functional.mish,
    "softplus": torch.nn.functional.softplus,
    "hardswish": torch.nn.functional.hardswish,
    "hardsigmoid": torch.nn.functional.hardsigmoid,
    "log_sigmoid": torch.nn.functional.logsigmoid,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "pow": lambda x: x.abs() ** 1.7,
    "pow base": lambda x: 2.0**x,
    "roots": lambda x: x.abs() ** 0.5 + x.abs() ** -0.5,
}


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 4e-6), (torch.float64, 4e-14), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)],
    ids=str,
)
def test_rounded_unary(dtype: torch.dtype, tolerance: float, xla) -> None:
    """XLA's functions are other approximations: a few units in the last place of what is computed in."""
    functions = list(ROUNDED_UNARY.values())
    names = list(ROUNDED_UNARY)
    x = values(dtype)
    results = xla.run(lambda x: [function(x) for function in functions], x)
    for name, function, result in zip(names, functions, results, strict=True):
        # One by one: for vectors, eager's kernels for AVX512 give NaN for gelu(inf).
        expected = torch.cat([function(element) for element in x.reshape(-1, 1)]).reshape(x.shape)
        torch.testing.assert_close(
            result,
            expected,
            rtol=tolerance,
            atol=tolerance / 8,
            equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_float_functions_of_integers(xla) -> None:
    xla.compare(
        lambda x, y: (torch.exp(x), torch.sqrt(x.abs()), x / y, torch.sigmoid(y), x.float().log1p()),
        values(torch.int32).clamp(min=0),
        nonzero(values(torch.int8)),
        rtol=1e-6,
        atol=1e-6,
    )


BINARY: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], object], tuple[torch.dtype, ...], bool]] = {
    "add": (torch.add, (*FLOATS, *INTEGERS, torch.bool), False),
    "sub": (torch.sub, (*FLOATS, *INTEGERS), False),
    "mul": (torch.mul, (*FLOATS, *INTEGERS, torch.bool), False),
    "div": (torch.div, (*FLOATS, *INTEGERS), False),
    "div trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (*FLOATS, *INTEGERS), True),
    "div floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (*FLOATS, *INTEGERS), True),
    "floor_divide": (torch.floor_divide, INTEGERS, True),
    "remainder": (torch.remainder, (*FLOATS, *INTEGERS), True),
    "fmod": (torch.fmod, (*FLOATS, *INTEGERS), True),
    "maximum": (torch.maximum, (*FLOATS, *INTEGERS, torch.bool), False),
    "minimum": (torch.minimum, (*FLOATS, *INTEGERS, torch.bool), False),
    "fmax": (torch.fmax, (*FLOATS, *INTEGERS), False),
    "fmin": (torch.fmin, (*FLOATS, *INTEGERS), False),
    "comparisons": (lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y), (*FLOATS, *INTEGERS), False),
    "bits": (lambda x, y: (x & y, x | y, x ^ y), (*INTEGERS, torch.bool), False),
    "shifts": (lambda x, y: (x << (y & 3), x >> (y & 3)), INTEGERS, False),
    "logic": (
        lambda x, y: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y)),
        (*FLOATS, *INTEGERS, torch.bool),
        False,
    ),
    "copysign": (torch.copysign, FLOATS, False),
    "where": (lambda x, y: torch.where(x > y, x, y), (*FLOATS, *INTEGERS), False),
    "heaviside": (torch.heaviside, (torch.float32, torch.int32), False),
    "rows": (lambda x, y: (x[0] + y, x[:, :1] * y, x[1, 2] - y), (*FLOATS, *INTEGERS), False),
}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, xla) -> None:
    function, dtypes, divides = BINARY[name]
    inputs: list[torch.Tensor] = []
    for dtype in dtypes:
        second = values(dtype, 1)
        inputs += [values(dtype), nonzero(second) if divides and not dtype.is_floating_point else second]
    xla.compare(lambda *xs: [function(x, y) for x, y in zip(xs[::2], xs[1::2], strict=True)], *inputs)


def test_rounded_binary(xla) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> object:
        return (
            *(torch.atan2(x, y), x.abs() ** y, torch.hypot(x, y), torch.logaddexp(x, y), torch.xlogy(x, y)),
            *(torch.addcmul(x, x, y, value=0.5), torch.addcdiv(x, x, y), torch.lerp(x, y, 0.3)),
            *(torch.add(x, y, alpha=0.3), torch.rsub(x, y, alpha=2.0)),
        )

    for dtype, tolerance in ((torch.float32, 4e-6), (torch.float64, 4e-14), (torch.bfloat16, 1.6e-2)):
        xla.compare(program, values(dtype), values(dtype, 1), rtol=tolerance, atol=tolerance)


def test_narrow_types_are_rounded_to_by_float32(xla) -> None:
    """Twice, that is: the numbers are a little beyond the middle between two of the narrow type."""
    wide = torch.tensor([1 + 2**-8 + 2**-40, 65519.999, 1.125 + 2**-40], dtype=torch.float64)
    integers = torch.tensor([2**62 + 2**54 + 1, 2**31 + 2**23 + 1, 2**24 + 2**16 + 1])
    narrow = (torch.bfloat16, torch.float16, torch.float8_e5m2)
    xla.compare(lambda x: [x.to(dtype) for dtype in narrow], wide)
    xla.compare(lambda x: [x.to(torch.bfloat16), x.to(torch.float16)], integers)
    xla.compare(lambda x: x.to(torch.bfloat16), integers[2:].int())


def test_promotion(xla) -> None:
    """Operands of different types: tensors before 0-dimensional ones before numbers."""
    dtypes = (torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16)
    inputs = [values(dtype, index) for index, dtype in enumerate(dtypes)]
    scalars = [value[1, 3].clone() for value in inputs]

    def program(*xs: torch.Tensor) -> object:
        tensors, numbers = xs[: len(dtypes)], xs[len(dtypes) :]
        pairs = [(x, y) for x in tensors for y in (*tensors, *numbers)]
        return [[x * y, x > y, torch.where(x > 0, x, y)] for x, y in pairs] + [
            [x + 1.5, x * 3, x > 0.5, 1 - (x.float()), torch.where(x > 0, x, 2.5)] for x in (*tensors, *numbers)
        ]

    xla.compare(program, *inputs, *scalars)


def test_empty_and_scalar_tensors(xla) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> object:
        return x + 1, torch.exp(x), x * y, y - 2, torch.where(x > 0, x, y), x.clamp(0, 1), y // 2, x == y

    xla.compare(program, torch.zeros(0, 3), torch.tensor(5.0), rtol=1e-6, atol=0.0)


def test_round_to_decimals(xla) -> None:
    x = torch.tensor([1.255, -2.345, 1234.5, 0.05, 15.0])
    xla.compare(lambda x: (torch.round(x, decimals=1), torch.round(x, decimals=-1)), x, rtol=1e-6, atol=0.0)
