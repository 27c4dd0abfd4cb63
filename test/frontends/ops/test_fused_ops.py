"""Fused ops are their parts, one after the other, bit for bit: as natively defined, and by the kernels of `cpu`."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

import vllm_ir as ir

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
FUSED = [
    name
    for name in ir.ops
    if ir.ops[name].native.__module__.startswith("vllm_ir.frontends.ops.fused_") or name == "concat_and_cache_mla"
]
NORMS = [name for name in FUSED if ir.ops[name].native.__module__.endswith(".fused_norm_quant")]
ACTIVATIONS = [name for name in FUSED if "_and_mul_" in name]
Run = Callable[..., tuple[Tensor, ...]]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def runner(provider: str) -> Run:
    """Calls an op's implementation on arguments that it leaves as they are."""

    def run(name: str, *args: object, **options: object) -> tuple[Tensor, ...]:
        op = ir.ops[name]
        given = op.bound(args, options)
        assert op.impls[provider].rejection(given) is None
        results = op.impls[provider].func_impl_fn(*given)
        return (results,) if isinstance(results, Tensor) else tuple(results)

    return run


def quantized(run: Run, suffix: str, x: Tensor, options: dict[str, object]) -> tuple[Tensor, ...]:
    """The part of a fused op that quantises, by what its name says of it."""
    dtype = "fp8" if "fp8" in suffix else "int8"
    if suffix.startswith("static"):
        return run(f"static_scaled_{dtype}_quant", x, options["scale"])
    if suffix.startswith("dynamic"):
        return run(f"dynamic_per_token_scaled_{dtype}_quant", x, *([options["scale_ub"]] if dtype == "fp8" else []))
    more = [options["use_ue8m0"]] if dtype == "fp8" else []
    return run(f"per_token_group_{dtype}_quant", x, options["group_size"], *more, options["quant_epsilon"])


def options_of(name: str) -> Iterator[dict[str, object]]:
    """Arguments of the quantisation in a fused op, as they differ."""
    if "static" in name:
        yield {"scale": torch.tensor([0.013])}
    elif "dynamic" in name:
        for bound in (None, torch.tensor([1.25])) if "fp8" in name else (None,):
            yield {"scale_ub": bound}
    else:
        for power in (False, True) if "fp8" in name else (False,):
            yield {"group_size": 16, "use_ue8m0": power, "quant_epsilon": 0.25 if power else 1e-10}


def accepted(name: str, options: dict[str, object]) -> dict[str, object]:
    """Those options that an op has."""
    return {key: value for key, value in options.items() if key in ir.ops[name].parameters}


def assert_same(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    for left, right in zip(got, want, strict=True):
        assert (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
        assert torch.equal(left.contiguous().view(torch.int8), right.contiguous().view(torch.int8))


def inputs(dtype: torch.dtype, columns: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and a residual: few and many, some of several dimensions, with gaps, and of unusual numbers."""
    for shape in ((1, columns), (2, 3, columns), (40, columns)):
        yield random(*shape, dtype=dtype), random(*shape, dtype=dtype, seed=1)
    wide, rest = random(3, 2 * columns, dtype=dtype), random(3, columns + 5, dtype=dtype, seed=1)
    yield wide[:, columns:], rest[:, :columns]
    unusual = random(6, columns, dtype=dtype)
    unusual[0], unusual[1] = 0.0, -0.0
    unusual[2, 3], unusual[3, 4], unusual[4, 5] = float("inf"), float("nan"), torch.finfo(dtype).max
    yield unusual, torch.zeros(6, columns, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("provider", ["native", "cpu"])
@pytest.mark.parametrize("name", NORMS)
def test_norm_and_quantisation(name: str, provider: str, dtype: torch.dtype) -> None:
    norm, _, suffix = name.partition("rms_norm_")
    norm += "rms_norm"
    run, cases = runner(provider), 0
    for columns in (64, 48):
        for x, residual in inputs(dtype, columns):
            rows = (x, residual) if norm.startswith("fused") else (x,)
            weights = [None, random(columns, dtype=dtype, seed=2)]
            if provider == "native" or norm == "rms_norm":
                # The result of the norm is float32, whatever x is.
                weights.append(random(columns, seed=2))
            for weight in weights:
                for options in options_of(name):
                    for measured in (None, columns // 2):
                        given = {"epsilon": 1e-5, "variance_size": measured, **accepted(name, options)}
                        normed, *residuals = run(norm, *rows, weight, 1e-5, measured)
                        want = (*quantized(run, suffix, normed, options), *residuals)
                        assert_same(run(name, *rows, weight, **given), want)
                        cases += 1
    assert cases >= 40


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("provider", ["native", "cpu"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_and_quantisation(name: str, provider: str, dtype: torch.dtype) -> None:
    activation, _, suffix = name.partition("_and_mul_")
    run = runner(provider)
    for columns in (64, 96):
        for x, _ in inputs(dtype, columns):
            for options in options_of(name):
                for form in ({"approximate": "none"}, {"approximate": "tanh"}) if activation == "gelu" else ({},):
                    given = accepted(name, {**options, "epsilon": options.get("quant_epsilon")})
                    (gated,) = run(f"{activation}_and_mul", 3 * x, **form)
                    assert_same(run(name, 3 * x, **given, **form), quantized(run, suffix, gated, options))


HEADS, KV_HEADS, SIZE, LATENT = 4, 2, 16, 24


def table(columns: int, dtype: torch.dtype) -> Tensor:
    return random(50, columns, dtype=dtype, seed=5)


def caches(dtype: torch.dtype) -> list[Tensor]:
    """Windows onto one tensor, as a model of several layers has them."""
    whole = random(6, 2, 4, KV_HEADS, SIZE, dtype=dtype, seed=6)
    return list(whole.unbind(1))


SLOTS = torch.tensor([5, -1, 23, 5, 0, 11, 5])
"""Of seven tokens: one has none, and three have the same."""


def projections(dtype: torch.dtype) -> Iterator[Tensor]:
    yield random(7, (HEADS + 2 * KV_HEADS) * SIZE, dtype=dtype)
    yield random(7, (HEADS + 2 * KV_HEADS) * SIZE + 3, dtype=dtype, seed=1)[:, :-3]


def normed_heads(run: Run, qkv: Tensor, weights: tuple[Tensor | None, ...]) -> list[Tensor]:
    """Queries and keys, normalised head by head, and values."""
    pieces = qkv.split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
    for_heads = [
        run("rms_norm", piece.unflatten(-1, (-1, SIZE)), weight, 1e-6)[0].flatten(-2)
        for piece, weight in zip(pieces, weights, strict=False)
    ]
    return [*for_heads, pieces[2]]


def rope_variants(dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Positions, a table, and the kind of pairs."""
    positions = torch.tensor([3, 0, 49, 7, 7, 12, 1])
    for is_neox in (True, False):
        yield positions, table(SIZE, dtype), is_neox
        yield positions.int(), table(SIZE // 2, torch.float32), is_neox


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("provider", ["native", "cpu"])
def test_norm_of_heads_and_rotation(provider: str, dtype: torch.dtype) -> None:
    run = runner(provider)
    weights = [(None, None), (random(SIZE, dtype=dtype, seed=2), random(SIZE, dtype=dtype, seed=3))]
    if provider == "native":
        weights.append((random(SIZE, seed=2), None))  # queries in float32
    for qkv in projections(dtype):
        for positions, turns, is_neox in rope_variants(dtype):
            for pair in weights:
                query, key, value = normed_heads(run, qkv, pair)
                want = (*run("rotary_embedding", positions, query, key, SIZE, turns, is_neox), value.contiguous())
                shared = (qkv, positions, *pair, 1e-6, HEADS, KV_HEADS, SIZE, turns, is_neox)
                assert_same(run("qk_norm_rope", *shared), want)
                if pair[0] is not None and pair[0].dtype != dtype:
                    continue
                key_cache, value_cache = caches(dtype)
                new = [piece.unflatten(1, (KV_HEADS, SIZE)) for piece in want[1:]]
                written = run("reshape_and_cache", *new, key_cache, value_cache, SLOTS)
                assert_same(run("qk_norm_rope_and_cache", *shared, key_cache, value_cache, SLOTS), (*want, *written))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("provider", ["native", "cpu"])
def test_rotation_and_cache(provider: str, dtype: torch.dtype) -> None:
    run = runner(provider)
    for qkv in projections(dtype):
        query, key, value = qkv.split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
        with_heads = [piece.unflatten(1, (-1, SIZE)) for piece in (query, key, value)]
        for positions, turns, is_neox in rope_variants(dtype):
            key_cache, value_cache = caches(dtype)
            want = run("rotary_embedding", positions, query, key, SIZE, turns, is_neox)
            written = run(
                "reshape_and_cache", want[1].unflatten(1, (-1, SIZE)), with_heads[2], key_cache, value_cache, SLOTS
            )
            rest = (key_cache, value_cache, SLOTS, SIZE, turns, is_neox)
            assert_same(run("rope_and_cache", positions, query, key, value, *rest), (*want, *written))
            want = run("rotary_embedding", positions, *with_heads[:2], SIZE, turns, is_neox)
            assert_same(run("rope_and_cache", positions, *with_heads, *rest), (*want, *written))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("provider", ["native", "cpu"])
def test_latent_attention(provider: str, dtype: torch.dtype) -> None:
    run = runner(provider)
    q_pe, k_pe, kv_c = random(7, HEADS, SIZE, dtype=dtype), random(7, SIZE, dtype=dtype), random(7, LATENT, dtype=dtype)
    cache = random(6, 4, 2, LATENT + SIZE, dtype=dtype, seed=6)[:, :, 1]
    for positions, turns, is_neox in rope_variants(dtype):
        query, key = run("rotary_embedding", positions, q_pe, k_pe, SIZE, turns, is_neox)
        (written,) = run("concat_and_cache_mla", kv_c, key, cache, SLOTS)
        got = run("mla_rope_and_cache", positions, q_pe, k_pe, kv_c, cache, SLOTS, turns, is_neox)
        assert_same(got, (query, key, written))
    for weights in ((None, random(SIZE, dtype=dtype)), (random(LATENT, dtype=dtype), None)):
        want = (*run("rms_norm", kv_c, weights[0], 1e-6), *run("rms_norm", k_pe, weights[1], 1e-6))
        assert_same(run("dual_rms_norm", kv_c, k_pe, *weights, 1e-6), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("provider", ["native", "cpu"])
def test_latents_go_to_their_slots(provider: str, dtype: torch.dtype) -> None:
    kv_c, k_pe = (random(7, size, seed=size).mul(9).to(dtype) for size in (LATENT, SIZE))
    cache = random(6, 4, LATENT + SIZE, seed=6).mul(9).to(dtype)
    want = cache.clone()
    for token, slot in enumerate(SLOTS.tolist()):
        if slot >= 0:
            want[slot // 4, slot % 4] = torch.cat((kv_c[token], k_pe[token]))
    assert_same(runner(provider)("concat_and_cache_mla", kv_c, k_pe, cache, SLOTS), (want,))
    nothing = runner(provider)("concat_and_cache_mla", kv_c[:0], k_pe[:0], cache, SLOTS[:0])
    assert_same(nothing, (cache,))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("provider", ["native", "cpu"])
def test_attention_and_quantisation(provider: str, dtype: torch.dtype) -> None:
    run = runner(provider)
    for options in ((None, None), (3, 5.0)):
        torch.manual_seed(0)
        *inputs, scale = ir.ops.paged_attention_static_fp8_quant.generate_inputs(num_tokens=9, dtype=dtype)
        (heads,) = run("paged_attention", *inputs, *options)
        want = run("static_scaled_fp8_quant", heads.flatten(1), scale)
        assert_same(run("paged_attention_static_fp8_quant", *inputs, scale, *options), want)


def generated(name: str, dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    torch.manual_seed(1)
    return ir.ops[name].generate_inputs(num_tokens=5, dtype=dtype)


@pytest.mark.parametrize("name", FUSED)
def test_metadata_without_data(name: str) -> None:
    args = generated(name, torch.bfloat16)
    want = tree_leaves(ir.ops[name](*args))
    for device in ("fake", "meta"):
        mode = FakeTensorMode()
        convert: Callable[[Tensor], Tensor] = mode.from_tensor if device == "fake" else lambda tensor: tensor.to("meta")
        with mode if device == "fake" else nullcontext():
            got = tree_leaves(ir.ops[name](*tree_map_only(Tensor, convert, args)))
        for left, right in zip(got, want, strict=True):
            assert (left.shape, left.dtype, left.stride()) == (right.shape, right.dtype, right.stride())


REGISTERED = [
    "fused_add_rms_norm_per_token_group_fp8_quant",
    "silu_and_mul_dynamic_per_token_fp8_quant",
    *("qk_norm_rope", "rope_and_cache", "mla_rope_and_cache", "concat_and_cache_mla", "dual_rms_norm"),
    *("rope_and_cache_static_fp8_quant", "mrope_embedding", "qk_norm_mrope_and_cache_static_fp8_quant"),
    *("fused_add_rms_norm_pad", "fused_add_rms_norm_double_static_fp8_quant", "gated_rms_norm"),
    *("gated_rms_norm_per_token_group_fp8_quant", "dual_rms_norm_dynamic_per_token_fp8_quant"),
]


@pytest.mark.parametrize("name", REGISTERED)
def test_torch_accepts_the_registration(name: str) -> None:
    torch.library.opcheck(ir.ops[name].torch_op, generated(name), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("name", REGISTERED)
def test_through_the_passes_and_the_text(name: str) -> None:
    args = generated(name)
    tensors = [arg for arg in args if isinstance(arg, Tensor)]

    def call(*given: Tensor) -> object:
        remaining = iter(given)
        return ir.ops[name](*(next(remaining) if isinstance(arg, Tensor) else arg for arg in args))

    module = ir.parse(str(ir.import_callable(call, *tensors)))
    for passes in ("functionalize", "lower"):
        ir.run_passes(module, passes)
        module.verify()
    assert f'"vllm_ir.{name}"' not in str(module)
    assert_same(tuple(tree_leaves(ir.export_fx(module)(*tensors))), tuple(tree_leaves(ir.ops[name](*args))))


def test_what_may_be_given_away() -> None:
    for name in FUSED:
        op = ir.ops[name]
        if name in NORMS and name.startswith("fused_add"):
            assert (op.activations, op.reuses[-1]) == (("x", "x_residual"), "x_residual")
            assert set(op.reuses[:-1]) == {None}
        elif name in (*NORMS, *ACTIVATIONS, "paged_attention_static_fp8_quant"):
            assert op.maybe_inplace is None, "results are narrower than what they are made of"
    assert ir.ops.rope_and_cache.reuses == ("query", "key", "key_cache", "value_cache")
    assert ir.ops.mla_rope_and_cache.reuses == ("q_pe", "k_pe", "kv_cache")
    assert ir.ops.qk_norm_rope_and_cache.reuses == (None, None, None, "key_cache", "value_cache")


def test_a_hash_covers_the_parts() -> None:
    """The definitions call functions, which a hash of their sources follows, and not ops, which it does not."""
    from vllm_ir.frontends.ops import quantization
    from vllm_ir.frontends.ops.sources import source_hash

    native = ir.ops.rms_norm_static_fp8_quant.native
    before, whole = source_hash([native]), quantization.FP8_MAX
    try:
        quantization.FP8_MAX = 240.0
        assert source_hash([native]) != before
    finally:
        quantization.FP8_MAX = whole
    assert source_hash([native]) == before


X, WEIGHT, SCALE = random(4, 32), random(32), torch.ones(1)
QKV, POSITIONS, TABLE = random(7, (HEADS + 2 * KV_HEADS) * SIZE), torch.arange(7), random(50, SIZE)
KEY_CACHE, VALUE_CACHE = caches(torch.float32)
QUERY, KEY = random(7, HEADS * SIZE), random(7, KV_HEADS * SIZE)
LATENT_CACHE = random(6, 4, LATENT + SIZE)
GEOMETRY = (HEADS, KV_HEADS, SIZE, TABLE, True)
REST = (SLOTS, SIZE, TABLE, True)
REFUSED: list[tuple[str, tuple[object, ...], str]] = [
    ("rms_norm_static_fp8_quant", (X.int(), None, SCALE, 1e-6), "x must be floating.*got torch.int32"),
    ("rms_norm_static_fp8_quant", (X, WEIGHT[:-1], SCALE, 1e-6), r"weight must have shape \[32\].*got \[31\]"),
    ("rms_norm_static_int8_quant", (X, None, SCALE.half(), 1e-6), "scale must be float32.*got torch.float16"),
    ("rms_norm_dynamic_per_token_fp8_quant", (X, None, 1e-6, WEIGHT), r"scale_ub must be.*shape \[32\]"),
    ("rms_norm_dynamic_per_token_int8_quant", (X[:, :0], None, 1e-6), r"not empty, got torch.float32 of shape \[4, 0"),
    ("rms_norm_per_token_group_fp8_quant", (X, None, 1e-6, 5), r"group_size 5, got shape \[4, 32\]"),
    ("rms_norm_per_token_group_int8_quant", (X, None, 1e-6, 8, 0.0), "quant_epsilon must be positive, got 0.0"),
    ("fused_add_rms_norm_static_fp8_quant", (X, X[:2], None, SCALE, 1e-6), r"x_residual must be.*\[2, 32\]"),
    ("fused_add_rms_norm_static_fp8_quant", (X, X, None, SCALE, 1e-6, 33), r"variance_size 33 is not in \[1, 32\]"),
    ("silu_and_mul_static_fp8_quant", (X[:, :5], SCALE), r"even last dimension, got torch.float32 of shape \[4, 5\]"),
    ("silu_and_mul_per_token_group_fp8_quant", (X, 0), "group_size must be positive, got 0"),
    ("gelu_and_mul_static_fp8_quant", (X, SCALE, "erf"), "approximate must be 'none' or 'tanh', got 'erf'"),
    ("qk_norm_rope", (QKV[:, 1:], POSITIONS, None, None, 1e-6, *GEOMETRY), r"a last dimension of 128, .*\[7, 127\]"),
    ("qk_norm_rope", (QKV, POSITIONS, None, WEIGHT, 1e-6, *GEOMETRY), r"k_weight must have shape \[16\].*got \[32\]"),
    ("qk_norm_rope", (QKV, POSITIONS, None, None, 1e-6, 0, *GEOMETRY[1:]), "must be positive, got 0, 2, 16"),
    ("qk_norm_rope", (QKV, POSITIONS, None, None, 1e-6, *GEOMETRY, 8), "rotary_dim 8 is not the number of columns"),
    ("rope_and_cache", (POSITIONS, QUERY, KEY, KEY[:, 1:], KEY_CACHE, VALUE_CACHE, *REST), r"value must be.*\[7, 31\]"),
    ("rope_and_cache", (POSITIONS, QUERY, KEY, KEY, KEY_CACHE, VALUE_CACHE[1:], *REST), "must have the same blocks"),
    ("rope_and_cache", (POSITIONS, QUERY, KEY.half(), KEY, KEY_CACHE, VALUE_CACHE, *REST), "same dtype.*torch.float16"),
    ("dual_rms_norm", (X, X.int(), None, None, 1e-6), "y must be floating.*got torch.int32"),
    (
        "mla_rope_and_cache",
        (POSITIONS, QUERY, KEY, KEY, LATENT_CACHE, SLOTS, TABLE, True),
        r"q_pe must be \[tokens, heads, rope_size\].*\[7, 64\] and \[7, 32\]",
    ),
    ("concat_and_cache_mla", (KEY, KEY, LATENT_CACHE, SLOTS), r"block_size, 64\].*got shape \[6, 4, 40\]"),
    ("concat_and_cache_mla", (KEY[0], KEY, LATENT_CACHE, SLOTS), r"kv_c must be \[tokens, size\].*of shape \[32\]"),
    ("concat_and_cache_mla", (KEY[:2, :24], KEY[:, :16], LATENT_CACHE, SLOTS), "token of kv_c, 2, and k_pe, 7, got"),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED, ids=lambda part: part if type(part) is str else "")
def test_refused_arguments(name: str, args: tuple[object, ...], message: str) -> None:
    op = ir.ops[name]
    with pytest.raises(ValueError, match=rf"^vllm_ir.{name}: .*{message}") as caught:
        op(*args)
    assert "\n" not in str(caught.value)
    assert op.select(op.complete(args), ["cpu"])[0].provider == "native", "the error has to come from there"
