"""Quantisation: faults that the comparison with the native definitions has to find, and what is special about results.

That the kernels themselves agree is in `test_cpu_agreement.py`.
"""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops, quantization

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
FP8 = torch.float8_e4m3fn
STATIC = ["static_scaled_fp8_quant", "static_scaled_int8_quant"]
TOKEN = ["dynamic_per_token_scaled_fp8_quant", "dynamic_per_token_scaled_int8_quant"]
GROUP = ["per_token_group_fp8_quant", "per_token_group_int8_quant"]
NAMES = [*STATIC, *TOKEN, *GROUP]


def quotients(values: Tensor, scale: Tensor, fault: str) -> Tensor:
    if fault == "divided":
        return values / scale
    return values * (1 / scale)


def to_fp8(values: Tensor, scale: Tensor, fault: str) -> Tensor:
    scaled = quotients(values, scale, fault)
    most = 240.0 if fault == "range of another float8" else 448.0
    if fault == "not a number lost":
        scaled = scaled.nan_to_num(0.0, most, -most)
    scaled = scaled.clamp(-most, most)
    if fault == "ties away from zero":
        # A hair further out, ties are none.
        scaled = scaled * (1 + 2.0**-22)
    if fault == "rounded down":
        scaled = scaled.view(torch.int32).bitwise_and(-(2**20)).view(torch.float32)
    if fault == "small numbers are zero":
        scaled = torch.where(scaled.abs() < 2.0**-6, 0.0 * scaled, scaled)
    if fault == "rounded twice":
        scaled = scaled.half().float()
    if fault == "no negative zero":
        scaled = scaled + 0.0
    return scaled.to(FP8)


def to_int8(values: Tensor, scale: Tensor, fault: str) -> Tensor:
    scaled = quotients(values, scale, fault).double()
    if fault == "ties away from zero":
        scaled = scaled.sign() * (scaled.abs() + 0.5).floor()
    if fault == "rounded down":
        scaled = scaled.trunc()
    if fault == "rounded twice":
        scaled = scaled.half().double()
    least = -127.0 if fault == "symmetric range" else -128.0
    whole = scaled.round().nan_to_num(127.0 if fault == "not a number is the most" else 0.0, 1e9, -1e9)
    if fault == "wraps around":
        return whole.to(torch.int64).to(torch.int8)
    return whole.clamp(least, 127.0).to(torch.int8)


def scales_of(most: Tensor, divisor: float, fault: str) -> Tensor:
    if fault == "multiplied by the reciprocal":
        return most * (1 / divisor)
    if fault == "another range":
        return most / (divisor + 1)
    if fault == "half precision scales":
        return (most / divisor).bfloat16().float()
    return most / divisor


def magnitude(values: Tensor, fault: str) -> Tensor:
    if fault == "greatest, not magnitude":
        return values.amax(-1, keepdim=True)
    if fault == "last element left out" and values.shape[-1] > 32:
        values = values[..., :-1]
    if fault == "not a number passed over":
        values = values.nan_to_num(0.0, float("inf"), -float("inf"))
    return values.abs().amax(-1, keepdim=True)


def faulty_static(x, scale, *, name, fault=""):
    convert = to_fp8 if "fp8" in name else to_int8
    return convert(x.float(), scale.reshape(()), fault)


def faulty_token(x, bound=None, *, name, fault=""):
    values = x.float()
    most = magnitude(values, fault)
    if bound is not None and fault != "bound left out":
        most = torch.minimum(most, bound)
    if "int8" in name:
        scales = scales_of(most, 127.0, fault)
        return to_int8(values, scales, fault), scales
    scales = scales_of(most, 448.0, fault)
    if fault != "no smallest scale":
        scales = scales.clamp(min=1 / (448 * (448 if fault == "another smallest scale" else 512)))
    return to_fp8(values, scales, fault), scales


def faulty_group(x, group_size, *options, name, fault=""):
    powers, epsilon = (*options, *(False, 1e-10)[len(options) :]) if "fp8" in name else (False, *(options or (1e-10,)))
    groups = x.float().reshape(*x.shape[:-1], x.shape[-1] // group_size, group_size)
    most = magnitude(groups, fault)
    if fault != "no epsilon":
        most = most + epsilon if fault == "epsilon added" else most.clamp(min=epsilon)
    scales = scales_of(most, 448.0 if "fp8" in name else 127.0, fault)
    if powers and fault != "no powers":
        exponents = scales.log2() if fault == "powers by logarithms" else scales.double().log2()
        exponents = exponents.floor() if fault == "powers rounded down" else exponents.ceil()
        # From the least normal number on.
        scales = torch.where(scales.isfinite(), torch.exp2(exponents.double().clamp(min=-126)).float(), scales)
    result = (to_fp8 if "fp8" in name else to_int8)(groups, scales, fault)
    return result.reshape(x.shape), scales[..., 0]


def implementation(name: str, fault: str):
    function = faulty_static if name in STATIC else faulty_token if name in TOKEN else faulty_group
    return lambda *args: function(*args, name=name, fault=fault)


def faults() -> Iterator[tuple[str, str]]:
    both = ("divided", "ties away from zero", "rounded down", "rounded twice")
    fp8 = ("range of another float8", "small numbers are zero", "no negative zero", "not a number lost")
    int8 = ("symmetric range", "not a number is the most", "wraps around")
    scales = ("multiplied by the reciprocal", "another range", "half precision scales")
    maxima = ("greatest, not magnitude", "last element left out", "not a number passed over")
    bounds = ("bound left out", "no smallest scale", "another smallest scale")
    powers = ("no powers", "powers by logarithms", "powers rounded down")
    for name in NAMES:
        narrow = fp8 if "fp8" in name else int8
        # With scales of its own maximum, a group reaches neither -128 nor what lies beyond.
        found = (*both, *(fault for fault in narrow if name in STATIC or fault in (*fp8, "not a number is the most")))
        found = found if name in STATIC else (*found, *scales, *maxima)
        if name == TOKEN[0]:
            found = (*found, *bounds)
        if name in GROUP:
            found = (*found, "no epsilon", "epsilon added")
        if name == GROUP[0]:
            found = (*found, *powers)
        yield from ((name, fault) for fault in found)


@pytest.mark.parametrize(("name", "fault"), list(faults()))
def test_a_planted_fault_is_found(agreement: ModuleType, name: str, fault: str):
    found = 0
    for dtype in FLOATS:
        try:
            agreement.check(name, implementation(name, fault), agreement.CASES[name](dtype))
        except AssertionError:
            found += 1
    assert found > 0


@pytest.mark.parametrize("name", NAMES)
def test_without_a_fault_the_same_implementation_passes(agreement: ModuleType, name: str):
    for dtype in FLOATS:
        agreement.check(name, implementation(name, ""), agreement.CASES[name](dtype))


@pytest.mark.parametrize("name", STATIC)
def test_numbers_of_the_narrow_dtype_stay(agreement: ModuleType, name: str):
    narrow = torch.arange(-128, 128).to(torch.int8).view(FP8 if "fp8" in name else torch.int8)
    got = ops[name].impls[PROVIDER].impl_fn(narrow.float(), torch.ones(1))
    assert torch.equal(agreement.comparable(got), agreement.comparable(narrow))


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_threads_does_not_matter(name: str):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 768, generator=generator)
    args = (x, torch.tensor([0.01])) if name in STATIC else (x,) if name in TOKEN else (x, 64)
    fn, threads = ops[name].impls[PROVIDER].impl_fn, torch.get_num_threads()
    results: list[list[Tensor]] = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            got = fn(*args)
            results.append([got] if isinstance(got, Tensor) else list(got))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a.view(torch.int8), b.view(torch.int8)) for a, b in zip(*results, strict=True))


def dequantized(name: str, x: Tensor, options: dict[str, object]) -> tuple[Tensor, Tensor]:
    """What a quantised `x` stands for, and the scale of each element."""
    if name in STATIC:
        scale = x.abs().amax() / (448 if "fp8" in name else 127)
        return ops[name](x, scale.reshape(1)).float() * scale, scale.expand(x.shape)
    quantized, scales = ops[name](x, **options)
    spread = scales.repeat_interleave(x.shape[-1] // scales.shape[-1], -1)
    return quantized.float() * spread, spread


@pytest.mark.parametrize("provider", ["native", PROVIDER])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_quantised_is_near(name: str, provider: str):
    x = torch.randn(40, 256, generator=torch.Generator().manual_seed(1))
    options: list[dict[str, object]] = [{"group_size": 32}] if name in GROUP else [{}]
    if name == GROUP[0]:
        options.append({"group_size": 64, "use_ue8m0": True})
    for given in options:
        with ops[name].set_priority([provider]):
            got, scales = dequantized(name, x, given)
        # Half a step: of int8 one scale, of float8 2^-4 of the number or 2^-10 scales; and some roundings of float32.
        step = scales / 2 if "int8" in name else torch.maximum(x.abs() * 2.0**-4, scales * 2.0**-10)
        assert ((got - x).abs() <= step * (1 + 2.0**-20) + x.abs() * 2.0**-20).all()


def test_scales_are_powers_of_two_that_do_not_clip():
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(2))
    plain, powers = (ops.per_token_group_fp8_quant(x, 32, use)[1] for use in (False, True))
    assert (torch.frexp(powers)[0] == 0.5).all()
    assert ((powers >= plain) & (powers < 2 * plain)).all()
    assert torch.equal(powers.to(torch.float8_e8m0fnu).float(), powers)


@pytest.mark.parametrize("name", NAMES)
def test_generated_arguments_are_taken(name: str):
    generate = getattr(quantization, f"generate_{name}_inputs")
    for dtype in FLOATS:
        args = generate(num_tokens=3, hidden_size=64, dtype=dtype)
        assert ops[name].select(args, [PROVIDER])[0].provider == PROVIDER


@pytest.mark.parametrize("name", NAMES)
def test_choosing_on_symbolic_sizes_ties_nothing_down(name: str):
    shapes, real = ShapeEnv(), torch.empty(3, 5, 16)
    with FakeTensorMode(shape_env=shapes, static_shapes=False) as mode:
        x = mode.from_tensor(real)
        assert all(isinstance(size, torch.SymInt) for size in x.shape)
        guards = len(shapes.guards)
        more = [torch.empty(1)] if name in STATIC else [8] if name in GROUP else []
        # Whether 8 divides an unknown size is not known.
        assert (ops[name].select([x, *more], [PROVIDER])[0].provider == PROVIDER) == (name not in GROUP)
        assert ops[name].select([x.new_empty((x.shape[0], 8 * x.shape[1])), *more], [PROVIDER])[0].provider == PROVIDER
    assert len(shapes.guards) == guards
