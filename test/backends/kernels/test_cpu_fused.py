"""The kernels of fused ops: memory, layouts, threads, schemas, what they refuse, and compiled programs.

That they give the bits of the kernels of their parts is tested in test/frontends/ops/test_fused_ops.py.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import vllm_ir as ir
from vllm_ir.backends.kernels.cpu.providers import PROVIDER

ops = ir.ops
FP8 = torch.float8_e4m3fn
HEADS, KV_HEADS, SIZE = 4, 2, 16


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, RESIDUAL, WEIGHT, SCALE = random(4, 32), random(4, 32, seed=1), random(32, seed=2), torch.tensor([0.02])
HALF_X = X.bfloat16()
POSITIONS, TABLE, SLOTS = torch.tensor([3, 0, 9, 9]), random(10, SIZE), torch.tensor([7, -1, 2, 7])
QKV = random(4, (HEADS + 2 * KV_HEADS) * SIZE)
QUERY, KEY, VALUE = QKV.split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
CACHES = random(2, 3, 4, KV_HEADS, SIZE, seed=3)
ROPE = (SLOTS, SIZE, TABLE, True)
LATENT_CACHE = random(3, 4, 24 + SIZE)
PLACES = (torch.tensor([[0, 1]]), torch.tensor([6]), torch.tensor([0, 4]))


def columns(x: Tensor) -> Tensor:
    return F.pad(x, (3, 5), value=float("nan"))[..., 3:-5]


def bits(results: object) -> list[Tensor]:
    return [result.contiguous().view(torch.int8) for result in tree_leaves(results)]


def same(left: object, right: object) -> bool:
    return all(map(torch.equal, bits(left), bits(right)))


ROW_OPS: list[tuple[str, Callable[[Tensor, Tensor], tuple[object, ...]]]] = [
    ("rms_norm_static_fp8_quant", lambda x, _: (x, WEIGHT, SCALE, 1e-6)),
    ("rms_norm_dynamic_per_token_int8_quant", lambda x, _: (x, None, 1e-6, 16)),
    ("rms_norm_per_token_group_fp8_quant", lambda x, _: (x, WEIGHT.bfloat16(), 1e-6, 8, True)),
    ("fused_add_rms_norm_static_int8_quant", lambda x, residual: (x, residual, WEIGHT, SCALE, 1e-6)),
    ("fused_add_rms_norm_dynamic_per_token_fp8_quant", lambda x, residual: (x, residual, None, 1e-6, SCALE)),
    ("fused_add_rms_norm_per_token_group_int8_quant", lambda x, residual: (x, residual, WEIGHT, 1e-6, 16)),
    ("silu_and_mul_static_fp8_quant", lambda x, _: (x, SCALE)),
    ("silu_and_mul_per_token_group_fp8_quant", lambda x, _: (x, 4)),
    ("gelu_and_mul_dynamic_per_token_fp8_quant", lambda x, _: (x, None, "tanh")),
]
LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    # name: (a tensor of the same shape and another layout, whether the provider takes it)
    "columns of a wider tensor": (columns, True),
    "every second row": (lambda x: x.repeat_interleave(2, 1)[:, ::2], True),
    "rows in another order": (lambda x: x.transpose(0, 1).contiguous().transpose(0, 1), False),
    "transposed": (lambda x: x.mT.contiguous().mT, False),
    "every second column": (lambda x: x.repeat_interleave(2, -1)[..., ::2], False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "make"), ROW_OPS, ids=lambda part: part if type(part) is str else "")
def test_layouts(name: str, make: Callable[[Tensor, Tensor], tuple[object, ...]], layout: str):
    change, taken = LAYOUTS[layout]
    op, (x, residual) = ops[name], random(2, 3, 4, 32)
    impl = op.impls[PROVIDER]
    want = impl.impl_fn(*op.complete(make(x.clone(), residual.clone())))
    args = op.complete(make(change(x.clone()), change(residual.clone())))
    assert (impl.rejection(args) is None) == taken
    assert same(impl.impl_fn(*args), want)
    if impl.written:
        assert torch.equal(args[1], tree_leaves(want)[-1]), "a residual of any strides is overwritten"


def test_the_residual_is_overwritten_and_x_stays():
    for name, make in ROW_OPS:
        if name.startswith("fused_add"):
            args = make(X.clone(), RESIDUAL.clone())
            with ops[name].set_priority([PROVIDER]):
                want, before = ops[name](*args), args[1].clone()
                assert torch.equal(args[1], RESIDUAL)
                got = ops[name].maybe_inplace(*args)
            assert same(got, want)
            assert got[-1].data_ptr() == args[1].data_ptr()
            assert torch.equal(args[0], X)
            assert not torch.equal(args[1], before)
            twice = make(X.clone(), X)
            with ops[name].set_priority([PROVIDER]):
                assert same(ops[name].maybe_inplace(twice[0], *twice[:1], *twice[2:]), ops[name](*make(X, X)))


def test_rotation_and_cache_are_in_place():
    whole, caches = QKV.clone(), CACHES.clone()
    query, key, value = whole.split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
    args = (POSITIONS, query, key, value, *caches.unbind(0), *ROPE)
    want = ops.rope_and_cache.native(POSITIONS, QUERY, KEY, VALUE, *CACHES.unbind(0), *ROPE)
    with ops.rope_and_cache.set_priority([PROVIDER]):
        got = ops.rope_and_cache.maybe_inplace(*args)
    addresses = [result.data_ptr() for result in got]
    assert addresses == [arg.data_ptr() for arg in (query, key, caches[0], caches[1])]
    assert same(got, want)
    assert torch.equal(value, VALUE)


@pytest.mark.parametrize("name", ["fused_add", "silu", "qk_norm_rope", "rope_and_cache"])
def test_the_number_of_threads_does_not_matter(name: str):
    tokens = 400
    x, residual = random(tokens, 768), random(tokens, 768, seed=1)
    positions, table = torch.arange(tokens), random(tokens, 64)
    caches = random(2, 20, 16, 2, 64).unbind(0)
    # Many tokens of each slot, of which threads have some each.
    rope = (*caches, positions % 37 - 1, 64, table, False)
    call, args = {
        "fused_add": (ops.fused_add_rms_norm_per_token_group_fp8_quant, (x, residual, None, 1e-6, 64)),
        "silu": (ops.silu_and_mul_dynamic_per_token_fp8_quant, (x,)),
        "qk_norm_rope": (ops.qk_norm_rope, (x, positions, None, None, 1e-6, 8, 2, 64, table, True)),
        "rope_and_cache": (ops.rope_and_cache, (positions, x[:, :512], x[:, 512:640], x[:, 640:], *rope)),
    }[name]
    threads, results = torch.get_num_threads(), []
    try:
        with call.set_priority([PROVIDER]):
            for count in (1, 3):
                torch.set_num_threads(count)
                results.append(call(*args))
    finally:
        torch.set_num_threads(threads)
    assert same(*results)


OPERATOR_ARGUMENTS: list[tuple[str, tuple[object, ...]]] = [
    ("rms_norm_static_quant", (columns(HALF_X), WEIGHT, SCALE, 1e-6, None, FP8)),
    ("rms_norm_token_quant", (random(2, 3, 8).transpose(0, 1), None, 1e-6, SCALE, 5, FP8)),
    ("rms_norm_group_quant", (X, WEIGHT, 1e-6, 8, False, 1e-10, None, torch.int8)),
    ("fused_add_rms_norm_static_quant_", (X, columns(RESIDUAL), WEIGHT, SCALE, 1e-6, None, torch.int8)),
    ("fused_add_rms_norm_token_quant_", (X.clone(), RESIDUAL.clone(), None, 1e-6, None, None, torch.int8)),
    ("fused_add_rms_norm_group_quant_", (X, RESIDUAL.clone(), WEIGHT, 1e-6, 16, True, 1e-10, None, FP8)),
    ("gated_static_fp8_quant", (columns(random(2, 3, 8)).transpose(0, 1), SCALE, "silu")),
    ("gated_token_fp8_quant", (HALF_X, None, "gelu")),
    ("gated_group_fp8_quant", (columns(X), 8, True, 1e-10, "gelu_tanh")),
    ("qk_norm_rope", (columns(QKV), POSITIONS, None, WEIGHT[:SIZE], 1e-6, HEADS, KV_HEADS, SIZE, TABLE, True)),
    ("rope_and_cache_", (POSITIONS, QUERY.clone(), KEY.clone(), VALUE.clone(), *CACHES.clone().unbind(0), *ROPE)),
    ("concat_and_cache_mla_", (X[:, :24].clone(), KEY[:, :SIZE].clone(), LATENT_CACHE.clone(), SLOTS)),
]


@pytest.mark.parametrize(("name", "args"), OPERATOR_ARGUMENTS, ids=lambda part: part if type(part) is str else "")
def test_schemas_and_fake_kernels_tell_the_truth(name: str, args: tuple[object, ...]):
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(getattr(torch.ops.vllm_ir_cpu, name).default, args, test_utils=checks)


def test_only_what_a_kernel_writes_is_mutable():
    expected = {
        **{f"fused_add_rms_norm_{kind}_quant_": ["residual"] for kind in ("static", "token", "group")},
        "rope_and_cache_": ["query", "key", "key_cache", "value_cache"],
        "concat_and_cache_mla_": ["kv_cache"],
    }
    for name, _ in OPERATOR_ARGUMENTS:
        schema = getattr(torch.ops.vllm_ir_cpu, name).default._schema
        written = [arg.name for arg in schema.arguments if arg.alias_info is not None and arg.alias_info.is_write]
        assert written == expected.get(name, [])


REFUSED: list[tuple[str, str, tuple[object, ...]]] = [
    ("rms_norm_static_fp8_quant", "float64", (X.double(), None, SCALE, 1e-6)),
    ("rms_norm_static_fp8_quant", "several scales", (X, None, WEIGHT, 1e-6)),
    ("rms_norm_per_token_group_int8_quant", "part of a group", (X, None, 1e-6, 5)),
    ("fused_add_rms_norm_static_fp8_quant", "weight that promotes", (HALF_X, HALF_X, WEIGHT, SCALE, 1e-6)),
    ("fused_add_rms_norm_static_fp8_quant", "residual of another dtype", (X, HALF_X, None, SCALE, 1e-6)),
    ("silu_and_mul_per_token_group_fp8_quant", "part of a group", (X, 32)),
    ("qk_norm_rope", "weight that promotes", (QKV.half(), POSITIONS, WEIGHT[:16], None, 1e-6, 4, 2, 16, TABLE, True)),
    ("rope_and_cache", "keys of another dtype", (POSITIONS, QUERY, KEY.half(), VALUE, *CACHES.half(), *ROPE)),
    ("concat_and_cache_mla", "rows that are not dense", (X[:, :24], X[:, ::2], LATENT_CACHE, SLOTS)),
]


@pytest.mark.parametrize(("name", "what", "args"), REFUSED, ids=lambda part: part if type(part) is str else "")
def test_arguments_that_are_left_to_the_native_definition(name: str, what: str, args: tuple[object, ...]):
    assert ops[name].select(ops[name].complete(args), [PROVIDER])[0].provider == "native"


CPU = torch.ops.vllm_ir_cpu
INVALID: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: CPU.rms_norm_static_quant(X, None, SCALE, 1e-6, None, torch.uint8), RuntimeError, "float8_e4m3fn or int8"),
    (lambda: CPU.rms_norm_token_quant(X, None, 1e-6, SCALE, None, torch.int8), RuntimeError, "int8 has no scale_ub"),
    (lambda: CPU.rms_norm_group_quant(X, None, 1e-6, 5, False, 1.0, None, FP8), RuntimeError, "group's size, 5"),
    (
        lambda: CPU.fused_add_rms_norm_static_quant_(X, X, None, SCALE, 1e-6, None, FP8),
        RuntimeError,
        "unsupported operation.*memory",
    ),
    (lambda: CPU.gated_static_fp8_quant(X, SCALE, "relu"), RuntimeError, "'silu', 'gelu' or 'gelu_tanh', got 'relu'"),
    (lambda: CPU.gated_group_fp8_quant(X, 32, False, 1.0, "silu"), RuntimeError, r"size, 32.*got shape \[4, 16\]"),
    (
        lambda: CPU.qk_norm_rope(QKV, POSITIONS + 9, None, None, 1e-6, HEADS, KV_HEADS, SIZE, TABLE, True),
        IndexError,
        "qk_norm_rope: position 12 is not a row of cos_sin_cache, which has 10",
    ),
    (
        lambda: CPU.qk_norm_rope(QKV, POSITIONS, None, None, 1e-6, HEADS, HEADS, SIZE, TABLE, True),
        RuntimeError,
        r"qkv must hold 4 heads and twice 4, of 16 elements, for each of 4 tokens; got shape \[4, 128\]",
    ),
    (
        lambda: CPU.concat_and_cache_mla_(X, KEY, LATENT_CACHE.clone(), SLOTS),
        RuntimeError,
        r"kv_cache must be \[blocks, block_size, 64\] on the cpu, got shape \[3, 4, 40\]",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), INVALID)
def test_operators_refuse_what_they_cannot_do(call: Callable[[], object], kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": SLOTS + 10}, "slot 17 is not in the cache, which has 12"),
        ({"positions": POSITIONS - 1}, "position -1 is not a row"),
    ],
)
def test_errors_come_before_anything_is_written(change: dict[str, Tensor], message: str):
    args = [QUERY.clone(), KEY.clone(), VALUE.clone(), *CACHES.clone().unbind(0)]
    before = [arg.clone() for arg in args]
    with pytest.raises(IndexError, match=message):
        CPU.rope_and_cache_(change.get("positions", POSITIONS), *args, change.get("slots", SLOTS), SIZE, TABLE, True)
    assert all(map(torch.equal, args, before))


def layer(x: Tensor, residual: Tensor, qkv: Tensor, cache: Tensor, positions: Tensor, slots: Tensor):
    """A norm whose residual dies, heads that are rotated, and two writes to the caller's cache."""
    key_cache, value_cache = cache[1].unbind(0)
    quantized, scales, residual = ir.ops.fused_add_rms_norm_per_token_group_fp8_quant(x, residual * 2, None, 1e-6, 16)
    query, key, value = ir.ops.qk_norm_rope(qkv, positions, None, None, 1e-6, HEADS, KV_HEADS, SIZE, TABLE, True)
    new = ir.ops.rope_and_cache(positions, query, key, value, key_cache, value_cache, slots, SIZE, TABLE, False)
    key_cache.copy_(new[2])
    value_cache.copy_(new[3])
    gated, most = ir.ops.silu_and_mul_dynamic_per_token_fp8_quant(residual)
    return quantized.float(), scales, new[0], new[1], gated.float(), most


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
def test_compiled_programs_use_the_kernels_and_copy_nothing(backend: str):
    names = ("fused_add_rms_norm_per_token_group_fp8_quant", "silu_and_mul_dynamic_per_token_fp8_quant")
    priority = {name: [PROVIDER] for name in (*names, "qk_norm_rope", "rope_and_cache")}
    ir.clear_compile_reports()
    options = {"ir_op_priority": priority}
    compiled = torch.compile(layer, backend=backend, fullgraph=True, options=options)
    for tokens in (5, 9):
        made = (random(tokens, 32), random(tokens, 32, seed=1), random(tokens, QKV.shape[1]))
        places = (torch.arange(tokens) % 10, torch.arange(tokens) * 5 % 12)
        for tensor in (*made, *places):
            torch._dynamo.mark_dynamic(tensor, 0)
        caches = [random(3, *CACHES.shape) for _ in range(2)]
        with torch.no_grad(), ir.KernelConfig(ir_op_priority=priority).apply():
            got, want = (run(*made, cache, *places) for run, cache in zip((compiled, layer), caches, strict=True))
        assert same(got, want)
        assert torch.equal(*caches)
    (report,) = ir.compile_reports()
    assert {provider for nodes in report.selected_impls.values() for provider in nodes.values()} == {PROVIDER}
    assert report.copies == []
