"""Run by `test_vllm_c.py` in a process that finds the stand-ins, on a platform that asks all providers for the CPU."""

import sys

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.backends.kernels import vllm_c
from vllm_ir.frontends.ops import enable_torch_wrap, ops
from vllm_ir.tools.testing import cases

PROVIDER = "vllm_c"
BF16, F32, FP8, INT8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int8


def calls() -> list[tuple[object, ...]]:
    """What the stand-in has recorded, which is not loaded by this file."""
    recorder = sys.modules.get("standin_kernels")
    return [] if recorder is None else recorder.CALLS


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls().clear()


def dense(dtype: torch.dtype, *shape: int) -> tuple[object, ...]:
    return dtype, shape, torch.empty(shape).stride()


X, W, HALF = dense(BF16, 32, 128), dense(BF16, 128), dense(BF16, 32, 64)
CACHE, NEW = dense(BF16, 8, 16, 2, 64), dense(BF16, 16, 2, 64)
ONE = dense(F32, 1)
EXPECTED: list[tuple[str, dict[str, object], tuple[object, ...]]] = [
    ("rms_norm", {}, ("_C::rms_norm", X, X, W, 1e-6)),
    ("fused_add_rms_norm", {}, ("_C::fused_add_rms_norm", X, X, W, 1e-6)),
    ("silu_and_mul", {"hidden_size": 64}, ("_C::silu_and_mul", HALF, X)),
    ("gelu_and_mul", {"hidden_size": 64}, ("_C::gelu_and_mul", HALF, X)),
    ("gelu_and_mul", {"hidden_size": 64, "approximate": "tanh"}, ("_C::gelu_tanh_and_mul", HALF, X)),
    (
        "rotary_embedding",
        {},
        ("_C::rotary_embedding", dense(torch.int64, 32), X, HALF, 64, dense(BF16, 4096, 64), True),
    ),
    (
        "rotary_embedding",
        {"is_neox": False, "rotary_dim": 32},
        ("_C::rotary_embedding", dense(torch.int64, 32), X, HALF, 64, dense(BF16, 4096, 32), False),
    ),
    ("static_scaled_fp8_quant", {}, ("_C::static_scaled_fp8_quant", dense(FP8, 32, 128), X, ONE)),
    (
        "dynamic_per_token_scaled_fp8_quant",
        {},
        ("_C::dynamic_per_token_scaled_fp8_quant", dense(FP8, 32, 128), X, dense(F32, 32, 1), None),
    ),
    (
        "dynamic_per_token_scaled_fp8_quant",
        {"bounded": True},
        ("_C::dynamic_per_token_scaled_fp8_quant", dense(FP8, 32, 128), X, dense(F32, 32, 1), ONE),
    ),
    (
        "per_token_group_fp8_quant",
        {},
        (
            *("_C::per_token_group_fp8_quant", X, dense(FP8, 32, 128), dense(F32, 32, 2)),
            *(64, 1e-10, -448.0, 448.0, False, False, False),
        ),
    ),
    ("static_scaled_int8_quant", {}, ("_C::static_scaled_int8_quant", dense(INT8, 32, 128), X, ONE, None)),
    (
        "dynamic_per_token_scaled_int8_quant",
        {},
        ("_C::dynamic_scaled_int8_quant", dense(INT8, 32, 128), X, dense(F32, 32, 1), None),
    ),
    (
        "reshape_and_cache",
        {},
        (
            *("_C_cache_ops::reshape_and_cache_flash", NEW, NEW, CACHE, CACHE),
            *(dense(torch.int64, 16), "auto", ONE, ONE),
        ),
    ),
]
NAMES = list(dict.fromkeys(name for name, _, _ in EXPECTED))
each = pytest.mark.parametrize(("name", "options", "call"), EXPECTED)


def as_tuple(results: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def same(left: Tensor | tuple[Tensor, ...], right: Tensor | tuple[Tensor, ...]) -> bool:
    pairs = zip(as_tuple(left), as_tuple(right), strict=True)
    return all(a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(bits(a), bits(b)) for a, b in pairs)


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def test_every_implementation_is_here():
    assert [name for name in ops if PROVIDER in ops[name].impls] == sorted(NAMES, key=list(ops).index)
    assert all(ops[name].impls[PROVIDER].supported for name in NAMES)
    assert vllm_c.unsupported_reason() is None


@each
def test_the_call_has_its_arguments_in_the_right_places(
    name: str, options: dict[str, object], call: tuple[object, ...]
):
    """The platform names the provider first, so that nothing has to be asked for."""
    args = ops[name].generate_inputs(**options)
    before = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
    results = ops[name](*args)
    assert calls() == [call]
    assert same(results, ops[name].native(*args))
    assert all(torch.equal(arg, old) for arg, old in zip(args, before, strict=True) if isinstance(arg, Tensor))


OTHERS = [
    ("aiter", "rms_norm", "aiter.rms_norm"),
    ("aiter", "fused_add_rms_norm", "aiter.rmsnorm2d_fwd_with_add"),
    ("aiter", "silu_and_mul", "aiter.silu_and_mul"),
    *(("xpu_kernels", name, f"_C::{name}") for name in NAMES[:4]),
]


@pytest.mark.parametrize(("provider", "name", "called"), OTHERS)
def test_others_call_their_library(provider: str, name: str, called: str):
    args = ops[name].generate_inputs(dtype=BF16)
    with ops[name].set_priority([provider, "native"]):
        assert same(ops[name](*args), ops[name].native(*args))
        assert same(torch.compile(lambda *args: ops[name](*args), backend="vllm_ir_eager")(*args), ops[name](*args))
    assert [call[0] for call in calls()] == [called] * 3


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        *((PROVIDER, name) for name in NAMES),
        *((provider, name) for provider, name, _ in OTHERS if name != "silu_and_mul"),
    ],
)
def test_it_conforms(provider: str, name: str, monkeypatch: pytest.MonkeyPatch):
    # Enough for calls, whose kernels are not under test; all sizes and dtypes of all ops take long.
    monkeypatch.setattr(cases, "DTYPES", (BF16,))
    monkeypatch.setattr(cases, "_SIZES", {"num_tokens": (0, 1), "hidden_size": (128, 33)})
    tried = ir.testing.check_impl(ops[name], provider)
    assert any("shifted" in case for case in tried.accepted)
    assert any("columns first" in case for case in tried.refused)


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_graph_for_any_number_of_rows_makes_the_same_call(name: str):
    _, options, call = next(expected for expected in EXPECTED if expected[0] == name)
    op, args = ops[name], ops[name].generate_inputs(**options)
    rows = next(arg.shape[0] for arg in args if isinstance(arg, Tensor))
    for arg in args:
        if isinstance(arg, Tensor) and arg.shape[0] == rows:
            torch._dynamo.mark_dynamic(arg, 0)
    ir.clear_compile_reports()
    results = torch.compile(lambda *args: op(*args), backend="vllm_ir_eager", fullgraph=True)(*args)
    assert calls() == [call]
    assert same(results, op.native(*args))
    (report,) = ir.compile_reports()
    assert [list(nodes.values()) for nodes in report.selected_impls.values()] == [[PROVIDER]]


def random(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


WIDE, TABLE, SLOTS = random(4, 8), random(10, 8), torch.arange(4)
KEYS, PLACES = random(4, 2, 8), random(3, 4, 2, 8)
SCALE = torch.tensor([0.5])
REFUSED: list[tuple[str, str, tuple[object, ...]]] = [
    ("rms_norm", "no weight", (WIDE, None, 1e-5)),
    ("rms_norm", "weight of another dtype", (WIDE, random(8, dtype=BF16), 1e-5)),
    ("rms_norm", "weight with gaps", (WIDE, random(16)[::2], 1e-5)),
    ("rms_norm", "variance_size", (WIDE, random(8), 1e-5, 4)),
    ("rms_norm", "float64", (WIDE.double(), random(8).double(), 1e-5)),
    ("rms_norm", "one dimension", (WIDE[0], random(8), 1e-5)),
    ("rms_norm", "five dimensions", (random(1, 1, 1, 4, 8), random(8), 1e-5)),
    ("rms_norm", "no rows", (WIDE[:0], random(8), 1e-5)),
    ("rms_norm", "rows between which vectors do not fit", (random(4, 9)[:, :8], random(8), 1e-5)),
    ("rms_norm", "heads before tokens", (random(2, 4, 8).transpose(0, 1), random(8), 1e-5)),
    ("rms_norm", "another device", (WIDE.to("meta"), random(8).to("meta"), 1e-5)),
    ("fused_add_rms_norm", "residual with gaps", (WIDE, random(4, 12)[:, :8], random(8), 1e-5)),
    ("fused_add_rms_norm", "residual of another dtype", (WIDE, WIDE.bfloat16(), random(8), 1e-5)),
    ("fused_add_rms_norm", "expanded", (random(8).expand(4, 8), WIDE, random(8), 1e-5)),
    ("fused_add_rms_norm", "uneven rows", (random(2, 3, 8)[:, :2], random(2, 2, 8), random(8), 1e-5)),
    ("silu_and_mul", "gaps", (random(4, 12)[:, :8],)),
    ("silu_and_mul", "empty rows", (WIDE[:, :0],)),
    ("gelu_and_mul", "float64", (WIDE.double(),)),
    ("rotary_embedding", "int32 positions", (SLOTS.int(), WIDE, WIDE, 8, TABLE, True)),
    ("rotary_embedding", "positions with gaps", (torch.arange(8)[::2], WIDE, WIDE, 8, TABLE, True)),
    ("rotary_embedding", "table of another dtype", (SLOTS, WIDE, WIDE, 8, TABLE.bfloat16(), True)),
    ("rotary_embedding", "heads that do not divide", (SLOTS, random(4, 16), random(4, 24), 8, TABLE, True)),
    ("rotary_embedding", "key of another rank", (SLOTS, random(4, 2, 8), random(4, 8), 8, TABLE, True)),
    ("rotary_embedding", "gaps between heads", (SLOTS, random(4, 2, 12)[..., :8], random(4, 2, 8), 8, TABLE, True)),
    (
        "rotary_embedding",
        "gaps between sequences",
        (SLOTS.view(2, 2), random(2, 3, 8)[:, :2], random(2, 2, 8), 8, TABLE, True),
    ),
    ("static_scaled_fp8_quant", "one dimension", (WIDE[0], SCALE)),
    ("static_scaled_fp8_quant", "no rows", (WIDE[:0], SCALE)),
    ("dynamic_per_token_scaled_fp8_quant", "uneven rows", (random(2, 3, 8)[:, :2], None)),
    ("per_token_group_fp8_quant", "powers of two", (random(4, 64), 32, True)),
    ("per_token_group_fp8_quant", "small groups", (random(4, 64), 8)),
    ("per_token_group_fp8_quant", "groups that do not fit", (random(4, 4096), 1024)),
    ("per_token_group_fp8_quant", "three dimensions", (random(2, 2, 64), 32)),
    ("static_scaled_int8_quant", "gaps", (random(4, 12)[:, :8], SCALE)),
    ("dynamic_per_token_scaled_int8_quant", "no rows", (WIDE[:0],)),
    ("reshape_and_cache", "no tokens", (KEYS[:0], KEYS[:0], PLACES, PLACES, SLOTS[:0])),
    ("reshape_and_cache", "float8", (*[t.to(FP8) for t in (KEYS, KEYS, PLACES, PLACES)], SLOTS)),
    ("reshape_and_cache", "other values", (KEYS, random(4, 2, 4), PLACES, random(3, 4, 2, 4), SLOTS)),
    (
        "reshape_and_cache",
        "caches of different strides",
        (KEYS, KEYS, PLACES, random(4, 3, 2, 8).transpose(0, 1), SLOTS),
    ),
    ("reshape_and_cache", "heads of 12 bytes", (random(4, 2, 3), random(4, 2, 3), *[random(3, 4, 2, 3)] * 2, SLOTS)),
]


@pytest.mark.parametrize(("name", "why", "args"), REFUSED, ids=[f"{name}: {why}" for name, why, _ in REFUSED])
def test_what_the_kernel_does_not_take_stays_native(name: str, why: str, args: tuple[object, ...]):
    assert not ops[name].impls[PROVIDER].supports_args(*args)
    assert ops[name].dispatch(*args).provider == "native"


def test_windows_of_a_projection_are_read_where_they_are():
    projected = random(4, 4 * 64, dtype=BF16)
    heads = projected[:, :128].unflatten(1, (2, 64))
    weight = random(64, dtype=BF16)
    assert same(ops.rms_norm(heads, weight, 1e-5), ops.rms_norm.native(heads, weight, 1e-5))
    assert calls() == [("_C::rms_norm", dense(BF16, 4, 2, 64), (BF16, (4, 2, 64), (256, 64, 1)), dense(BF16, 64), 1e-5)]
    calls().clear()
    query, key, _ = projected.split([128, 64, 64], 1)
    want = ops.rotary_embedding.native(SLOTS, query, key, 64, table := random(10, 64, dtype=BF16), True)
    got = ops.rotary_embedding.maybe_inplace(SLOTS, query, key, 64, table, True)
    assert [call[2:4] for call in calls()] == [((BF16, (4, 128), (256, 1)), (BF16, (4, 64), (256, 1)))]
    assert got[0] is query
    assert got[1] is key
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_a_window_that_begins_between_vectors_is_copied():
    x = random(4 * 8 + 1)[1:].view(4, 8)
    assert same(ops.rms_norm(x, random(8), 1e-5), ops.rms_norm.native(x, random(8), 1e-5))
    assert [call[0] for call in calls()] == ["_C::rms_norm"]


def test_what_a_compiled_graph_gives_away_is_written():
    def step(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        normed, residual = ops.fused_add_rms_norm.maybe_inplace(x * 2, residual + 1, weight, 1e-5)
        return normed + residual

    options = {"ir_op_priority": {"fused_add_rms_norm": [PROVIDER]}}
    compiled = torch.compile(step, backend="vllm_ir_eager", fullgraph=True, dynamic=True, options=options)
    x, weight = random(4, 8), random(8)
    ir.clear_compile_reports()
    torch.testing.assert_close(compiled(x, x, weight), step(x, x, weight))
    assert [call[0] for call in calls()] == ["_C::fused_add_rms_norm"] * 2
    (report,) = ir.compile_reports()
    assert report.copies == []


def test_dynamo_traces_the_call_where_ops_are_not_wrapped():
    x, weight = random(4, 8), random(8)
    with enable_torch_wrap(False):
        compiled = torch.compile(lambda x, weight: ops.rms_norm(x, weight, 1e-5), backend="eager", fullgraph=True)
        assert same(compiled(x, weight), ops.rms_norm.native(x, weight, 1e-5))
    assert [call[0] for call in calls()] == ["_C::rms_norm"]
