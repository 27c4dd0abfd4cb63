"""Programs of gelu_and_mul and of quantisation: text, lowering, conversion to StableHLO, and XLA."""

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.frontends.ops import activations, ops, quantization

STATIC = ("static_scaled_fp8_quant", "static_scaled_int8_quant")
QUANT = (
    *STATIC,
    "dynamic_per_token_scaled_fp8_quant",
    "dynamic_per_token_scaled_int8_quant",
    "per_token_group_fp8_quant",
    "per_token_group_int8_quant",
)


def tensors(results: object) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def generated(name: str, **options: object) -> tuple[object, ...]:
    torch.manual_seed(0)
    return getattr(quantization if name in QUANT else activations, f"generate_{name}_inputs")(**options)


PROGRAMS = [
    *((name, {}) for name in (*QUANT, "gelu_and_mul")),
    ("gelu_and_mul", {"approximate": "tanh"}),
    ("dynamic_per_token_scaled_fp8_quant", {"bounded": True}),
    ("per_token_group_fp8_quant", {"use_ue8m0": True}),
]


def program_of(name: str, args: tuple[object, ...]):
    """A function of the tensors among the arguments, and these."""

    def program(*given: Tensor) -> list[Tensor]:
        rest = iter(given)
        return tensors(ops[name](*[next(rest) if isinstance(arg, Tensor) else arg for arg in args]))

    return program, [arg for arg in args if isinstance(arg, Tensor)]


@pytest.mark.parametrize(("name", "options"), PROGRAMS)
def test_text_round_trip_and_lowering(name: str, options: dict[str, object]) -> None:
    program, given = program_of(name, generated(name, **options))
    module = ir.import_callable(program, *given)
    text = str(module)
    assert f"vllm_ir.{name}" in text
    assert str(ir.parse(text)) == text
    want = program(*given)
    for passes in ("alias-outputs,functionalize", "lower"):
        ir.run_passes(module, passes)
        assert all(map(torch.equal, map(codes_of, ir.interpret(module, *given)), map(codes_of, want)))
    assert f"vllm_ir.{name}" not in str(module)


def codes_of(result: Tensor) -> Tensor:
    return result.view(torch.int8)


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
@pytest.mark.parametrize(("name", "options"), [program for program in PROGRAMS if program[0] in QUANT])
def test_compiled_native_definitions_of_unusual_rows(name: str, options: dict[str, object], backend: str) -> None:
    program, (x, *more) = program_of(name, generated(name, num_tokens=7, **options))
    x[0], x[1, 3], x[2, 5], x[3, 70], x[4] = 0.0, float("nan"), float("inf"), -float("inf"), x[4] * 1e-30
    want = program(x, *more)
    with torch.no_grad():
        results = torch.compile(program, backend=backend, fullgraph=True)(x, *more)
    # Which NaN is not defined.
    for got, right in zip(results, want, strict=True):
        assert got.dtype == right.dtype
        torch.testing.assert_close(got.float(), right.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("name", "options"), PROGRAMS)
def test_conversion_to_stablehlo(name: str, options: dict[str, object]) -> None:
    program, given = program_of(name, generated(name, **options))
    module = ir.import_callable(program, *given)
    ir.run_passes(module, "alias-outputs,functionalize,lower")
    assert "stablehlo." in str(ir.export_stablehlo(module).module)
    ir.run_passes(module, "convert-to-stablehlo")
    results = ir.interpret(module, *given)
    for got, want in zip(results, program(*given), strict=True):
        if name == "gelu_and_mul":
            torch.testing.assert_close(got, want)
        else:
            assert torch.equal(codes_of(got), codes_of(want))


@pytest.mark.parametrize(("name", "options"), PROGRAMS)
def test_on_xla(name: str, options: dict[str, object]) -> None:
    program, given = program_of(name, generated(name, **options))
    with torch.no_grad():
        results = torch.compile(program, backend="vllm_ir_xla", fullgraph=True)(*given)
    *narrow, scales = results if len(results) == 2 else (*results, None)
    want = program(*given)
    if scales is not None:
        # XLA multiplies by the reciprocal of 448 or 127, which is rounded, instead of dividing.
        torch.testing.assert_close(scales, want[1], rtol=2 * 2.0**-23, atol=0)
    (got,) = narrow
    assert got.dtype == want[0].dtype
    if name == "gelu_and_mul":
        torch.testing.assert_close(got, want[0])
    elif name in STATIC:
        assert torch.equal(codes_of(got), codes_of(want[0]))
    else:
        # A quotient that is a tie may move with its scale.
        assert (got.view(torch.int8) != want[0].view(torch.int8)).float().mean() <= 0.01
