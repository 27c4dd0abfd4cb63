"""Arguments that are left to the native definition, and errors of the operators."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

EPSILON = 1e-5


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, HALF_X, TABLE = random(4, 8), random(4, 8, dtype=torch.bfloat16), random(10, 8)
SCALE = torch.tensor([0.5])
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
    ("gelu_and_mul", "odd", (random(3, 7),)),
    ("gelu_and_mul", "float64", (X.double(), "tanh")),
    ("gelu_and_mul", "another form", (X, "erf")),
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
    ("static_scaled_fp8_quant", "float64", (X.double(), SCALE)),
    ("static_scaled_fp8_quant", "integers", (X.int(), SCALE)),
    ("static_scaled_fp8_quant", "no dimension", (torch.tensor(1.0), SCALE)),
    ("static_scaled_fp8_quant", "several scales", (X, random(4))),
    ("static_scaled_fp8_quant", "no scale", (X, random(0))),
    ("static_scaled_fp8_quant", "bfloat16 scale", (X, SCALE.bfloat16())),
    ("static_scaled_int8_quant", "scale on another device", (X, SCALE.to("meta"))),
    ("static_scaled_int8_quant", "float64 scale", (X, SCALE.double())),
    ("dynamic_per_token_scaled_fp8_quant", "empty rows", (X[:, :0],)),
    ("dynamic_per_token_scaled_fp8_quant", "several bounds", (X, random(4, 1))),
    ("dynamic_per_token_scaled_fp8_quant", "float16 bound", (X, SCALE.half())),
    ("dynamic_per_token_scaled_int8_quant", "empty rows", (X[:, :0],)),
    ("dynamic_per_token_scaled_int8_quant", "float8", (X.to(torch.float8_e4m3fn),)),
    ("per_token_group_fp8_quant", "part of a group", (X, 3)),
    ("per_token_group_fp8_quant", "group_size 0", (X, 0)),
    ("per_token_group_fp8_quant", "negative group_size", (X, -2)),
    ("per_token_group_fp8_quant", "epsilon 0", (X, 4, False, 0.0)),
    ("per_token_group_int8_quant", "epsilon that is not a number", (X, 4, float("nan"))),
    ("per_token_group_int8_quant", "no dimension", (torch.tensor(1.0), 1)),
]


@pytest.mark.parametrize(("name", "what", "args"), REFUSED, ids=lambda part: part if type(part) is str else "")
def test_refused_arguments(name: str, what: str, args: tuple[object, ...]):
    op = ops[name]
    impl, rejected = op.select(args, [PROVIDER])
    assert impl.provider == "native"
    assert [provider for provider, _ in rejected] == [PROVIDER]


def test_errors_come_from_the_native_definition():
    with (
        ops.rms_norm.set_priority([PROVIDER]),
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
    (lambda: torch.ops.vllm_ir_cpu.gelu_and_mul(random(7)), RuntimeError, r"must be even, got shape \[7\]"),
    (
        lambda: torch.ops.vllm_ir_cpu.gelu_and_mul(X, "erf"),
        RuntimeError,
        "gelu_and_mul: approximate must be 'none' or 'tanh', got 'erf'",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.static_scaled_fp8_quant(X, random(2)),
        RuntimeError,
        r"static_scaled_fp8_quant: scale must be float32 with one element, on the cpu; got Float of shape \[2\] on cpu",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.static_scaled_int8_quant(X.double(), SCALE),
        RuntimeError,
        "static_scaled_int8_quant: x must be float32.*got Double",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.dynamic_per_token_scaled_fp8_quant(X, SCALE.half()),
        RuntimeError,
        r"dynamic_per_token_scaled_fp8_quant: scale_ub must be float32 with one element.*got Half of shape \[1\]",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.per_token_group_fp8_quant(X, 3),
        RuntimeError,
        r"last dimension of x must be a multiple of the group's size, 3, and that positive; got shape \[4, 8\]",
    ),
    (
        lambda: torch.ops.vllm_ir_cpu.per_token_group_int8_quant(X, 0),
        RuntimeError,
        "a multiple of the group's size, 0, and that positive",
    ),
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
