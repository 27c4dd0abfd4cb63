"""Powers of integers, bit for bit, and of a complex zero: where XLA's own operation has other results."""

import itertools

import pytest
import torch

import vllm_ir as ir
from vllm_ir.backends.interpreter.stablehlo.evaluate import evaluate

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Eager mode has no powers of these; `reference` stands for it."""
SMALL = [0, 1, 2, 3, 5, 6, 7, 17, 31, 32, 62, 63, 64, 65, 100, 127]
"""Exponents that fit into every type."""


def edges(dtype: torch.dtype) -> list[int]:
    limits = torch.iinfo(dtype)
    numbers = {*SMALL, limits.max, limits.max - 1, limits.max // 2 + 1, limits.min, limits.min + 1}
    if limits.min < 0:
        numbers |= {-1, -2, -3, -7, -64}
    return sorted(numbers | {number for number in (1000003, 2**31, 2**40 + 1, 2**62) if number <= limits.max})


def grid(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of edges."""
    numbers = torch.tensor(edges(dtype), dtype=dtype)
    return torch.meshgrid(numbers, numbers, indexing="ij")


def reference(base: int, exponent: int, dtype: torch.dtype) -> int:
    """The power in Python's numbers, as the bits of a type."""
    size = 1 << torch.iinfo(dtype).bits
    if exponent < 0:
        return (base if exponent % 2 else 1) % size if abs(base) == 1 else 0
    return pow(base, exponent, size)


def both(xla, function, *inputs: torch.Tensor) -> None:
    """XLA's results are eager's, and so are those of the reference evaluator."""
    xla.compare(function, *inputs)
    module = xla.converted(lambda *values: [value.clone() for value in xla.flat(function(*values))], *inputs)
    arrays = evaluate(module, [xla.to_numpy(value) for value in inputs])
    for array, expected in zip(arrays, xla.flat(function(*inputs)), strict=True):
        torch.testing.assert_close(xla.to_torch(array, expected.dtype), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_every_exponent(dtype: torch.dtype, xla) -> None:
    both(xla, lambda x, y: x**y, *grid(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_known_exponents(dtype: torch.dtype, xla) -> None:
    exponents = [number for number in edges(dtype) if number >= 0]
    both(xla, lambda x: [x**exponent for exponent in exponents], torch.tensor(edges(dtype), dtype=dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_known_bases(dtype: torch.dtype, xla) -> None:
    """Numbers that do not fit into the type wrap around, as in eager mode."""
    bases = [-(2**40) - 3, -7, -1, 0, 1, 2, 3, 300, 2**40 + 3]
    both(xla, lambda y: [torch.pow(base, y) for base in bases], torch.tensor(edges(dtype), dtype=dtype))


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_types_without_powers_in_eager_mode(dtype: torch.dtype, xla) -> None:
    """They have some on tensors without data, and so can be converted."""
    base, exponent = (xla.to_numpy(value) for value in (torch.tensor(edges(dtype), dtype=dtype),) * 2)
    size, element = len(base), f"ui{torch.iinfo(dtype).bits}"
    kinds = (f"tensor<{size}x1x{element}>", f"tensor<{size}x{element}>", f"tensor<{size}x{size}x{element}>")
    text = f"""
        vllm_ir.func functional @main(%x: {kinds[0]}, %y: {kinds[1]}) -> {kinds[2]} {{
          %z = torch.call @aten.pow.Tensor_Tensor(%x, %y) : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
          vllm_ir.return (%z) : {kinds[2]}
        }}"""
    module = ir.parse(text)
    ir.run_passes(module, "convert-to-stablehlo")
    expected = [[reference(x, y, dtype) for y in edges(dtype)] for x in edges(dtype)]
    for (result,) in (
        xla.execute(str(module), [base[:, None], exponent]),
        evaluate(module, [base[:, None], exponent]),
    ):
        assert result.dtype == base.dtype
        assert result.tolist() == expected


def test_reference() -> None:
    """It says what eager mode does where that has powers."""
    for dtype in INTEGERS:
        base, exponent = grid(dtype)
        pairs = itertools.product(edges(dtype), edges(dtype))
        size = 1 << torch.iinfo(dtype).bits
        assert [number % size for number in (base**exponent).flatten().tolist()] == [
            reference(x, y, dtype) for x, y in pairs
        ]


def test_types_and_shapes_that_differ(xla) -> None:
    """The exponent wraps around to the type of the result, which a tensor without dimensions does not decide."""
    narrow = torch.tensor([[0], [1], [-1], [2], [-3]], dtype=torch.int8)
    wide = torch.tensor([0, 3, 64, 300, -1, 2**40 + 1])
    flags = torch.tensor([True, False, True, False, True])
    both(
        xla,
        lambda x, y, n, flags: (
            *(x**y, y**x, x**n, n**x, n**n, x[:0] ** y, x[:, 0] ** flags),
            *(flags**3, flags ** y[:5], flags ** flags.int(), torch.pow(3, flags)),
        ),
        narrow,
        wide,
        torch.tensor(300),
        flags,
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_powers_of_a_complex_zero(dtype: torch.dtype, xla) -> None:
    """0 for exponents with a positive real part; else not a number, unless the exponent is known to be 0."""
    exponents = torch.tensor([0, 1, 2, 0.5, 2 + 1j, 0.25 - 3j, 1j, -1j, -1, -2.5, -1 + 1j], dtype=dtype)
    zeros = torch.zeros_like(exponents)
    # Zeros are equal whatever their signs are.
    xla.compare(lambda x, y: (x**y, torch.pow(0, y), torch.pow(0j, y), torch.pow(1, y)), zeros, exponents)
    known = [number for value in exponents.tolist() for number in (value, value.real)]
    xla.compare(lambda x: [x**exponent for exponent in known], zeros)


def test_other_complex_powers(xla) -> None:
    numbers = torch.tensor([0, 1, -1, 2j, 1 + 1j, -0.5 - 2j], dtype=torch.complex64)
    base, exponent = torch.meshgrid(numbers, numbers, indexing="ij")
    xla.compare(lambda x, y: x**y, base, exponent, rtol=4e-6, atol=4e-6)
