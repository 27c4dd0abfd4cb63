"""Models of `transformers`, unmodified: what of them becomes ops, and that they do the same.

Weights are random. Expected counts are those of the models' definitions: norms per layer and one behind the last, two
rotations and a gated activation per layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, fx
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    StaticCache,
    T5Config,
    T5EncoderModel,
)

import vllm_ir as ir
from vllm_ir.backends.inductor.torch_internals import decompositions
from vllm_ir.tools.compile import vllm_ir_eager
from vllm_ir.tools.lowering import lower_graph
from vllm_ir.tools.options import parse_options
from vllm_ir.tools.reports import recording

LAYERS = 2
HEADS, HEAD_SIZE = 4, 8
VOCABULARY = 40
LENGTH = 16
EXACT = {"fusions": True, "numerics": "exact"}


def config(
    kind: type[PretrainedConfig], layers: int = LAYERS, kv_heads: int = 2, **settings: object
) -> PretrainedConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": HEAD_SIZE}
    return kind(num_hidden_layers=LAYERS, pad_token_id=0, bos_token_id=1, eos_token_id=2, **sizes, **heads, **settings)


def t5() -> PretrainedConfig:
    sizes = {"d_model": 32, "d_kv": HEAD_SIZE, "d_ff": 48, "num_heads": HEADS, "vocab_size": VOCABULARY}
    return T5Config(num_layers=LAYERS, feed_forward_proj="gated-gelu", dropout_rate=0.0, **sizes)


def make(kind: type[PreTrainedModel], settings: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(0)
    return kind(settings).to(dtype).eval().requires_grad_(False)


@dataclass
class Counting:
    """A backend that runs as `vllm_ir_eager` does, and counts what is fused for it and for `vllm_ir`."""

    plain: list[dict[str, int]] = field(default_factory=list)
    decomposed: list[dict[str, int]] = field(default_factory=list)

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        call = vllm_ir_eager(graph, inputs, options=EXACT)
        self.plain.append(_counts(ir.compile_reports()[-1].fusions))
        with recording("vllm_ir", "inference") as report:
            lower_graph(graph, inputs, parse_options(None, EXACT), report, decompositions(), inductor=True)
        self.decomposed.append(_counts(report.fusions))
        return call


def _counts(fusions: dict[str, list[str]]) -> dict[str, int]:
    return {name.removeprefix("recognize_"): len(places) for name, places in fusions.items()}


BF16 = {"rotary": 2 * LAYERS}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, BF16 | {"rms_norm": 2 * LAYERS + 1, "silu_mul": LAYERS}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, BF16 | {"rms_norm": 4 * LAYERS + 1, "silu_mul": LAYERS}),
    "mistral": (MistralForCausalLM, MistralConfig, BF16 | {"rms_norm": 2 * LAYERS + 1, "silu_mul": LAYERS}),
    "gemma": (GemmaForCausalLM, GemmaConfig, BF16 | {"rms_norm_rounded_last": 2 * LAYERS + 1, "gelu_mul": LAYERS}),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, BF16 | {"rms_norm_rounded_last": 4 * LAYERS + 1, "gelu_mul": LAYERS}),
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        BF16 | {"rms_norm_rounded_last": 6 * LAYERS + 1, "gelu_mul": LAYERS},
    ),
    "t5": (T5EncoderModel, t5, {"rms_norm": 2 * LAYERS + 1}),
}


@pytest.mark.parametrize("name", MODELS)
def test_recognition_in_bfloat16_changes_no_bit(name: str):
    kind, settings, expected = MODELS[name]
    attention = {"attn_implementation": "eager"} if name == "gemma2" else {}
    model = make(kind, t5() if name == "t5" else config(settings, **attention), torch.bfloat16)
    ids = torch.arange(3, 8).reshape(1, 5)

    def forward(ids: Tensor) -> Tensor:
        return model(input_ids=ids).last_hidden_state if name == "t5" else model(input_ids=ids, use_cache=False).logits

    backend = Counting()
    with torch.no_grad():
        got = torch.compile(forward, backend=backend, fullgraph=True, dynamic=False)(ids)
        assert torch.equal(got, forward(ids))
    assert backend.plain == [expected]
    assert backend.decomposed == [expected]


LLAMA = {"rotary": 2, "silu_mul": 1, "cache_update": 1, "add_rms_norm": 2}
"""Per layer, in float32; and one norm more than two per layer, the last of which has a sum in front of it as well."""


def greedy(
    model: PreTrainedModel, settings: LlamaConfig, step: Callable[..., Tensor]
) -> tuple[list[int], list[Tensor]]:
    """Tokens that follow a prompt, and all logits and the cache at the end."""
    cache = StaticCache(config=settings, max_cache_len=LENGTH)
    cache.early_initialization(1, settings.num_key_value_heads, HEAD_SIZE, torch.float32, torch.device("cpu"))
    ids, tokens, seen = torch.arange(3, 8).reshape(1, 5), list[int](), list[Tensor]()
    for _ in range(6):
        logits = step(ids, cache)
        ids = logits[:, -1:].argmax(-1)
        tokens.append(int(ids))
        seen.append(logits)
    return tokens, [*seen, *(layer.keys for layer in cache.layers), *(layer.values for layer in cache.layers)]


@pytest.mark.parametrize("numerics", ["exact", "changed"])
def test_llama_with_a_static_cache_gives_the_tokens_of_eager_mode(numerics: str):
    settings = config(LlamaConfig)
    model = make(LlamaForCausalLM, settings, torch.float32)

    def step(ids: Tensor, cache: StaticCache) -> Tensor:
        return model(input_ids=ids, past_key_values=cache, use_cache=True).logits

    options = {"fusions": True, "numerics": numerics}
    compiled = torch.compile(step, backend="vllm_ir_eager", fullgraph=True, dynamic=False, options=options)
    with torch.no_grad():
        tokens, bits = greedy(model, settings, compiled)
        expected_tokens, _ = greedy(model, settings, step)
    assert tokens == expected_tokens
    grouped = {"grouped_attention": 1} if numerics == "changed" else {}
    counts = {name: count * LAYERS for name, count in (LLAMA | grouped).items()}
    if numerics == "changed":
        counts["rms_norm_reshape"] = 1  # the last one, the only one with a single user
    reports = ir.compile_reports()[-2:]  # of the prompt and of a token
    assert [_counts(report.fusions) for report in reports] == [counts | {"rms_norm": 2 * LAYERS + 1}] * 2
    if numerics == "changed":
        assert not reports[-1].copies  # neither of the cache nor of repeated heads
        return
    # What transformers computes depends on whether it is being traced, so this is what was traced.
    with torch.no_grad():
        _, expected_bits = greedy(model, settings, torch.compile(step, backend="eager", fullgraph=True, dynamic=False))
    assert all(torch.equal(one, other) for one, other in zip(bits, expected_bits, strict=True))


@pytest.mark.slow
def test_llama_through_inductor_is_the_same_with_and_without_exact_fusions():
    model = make(LlamaForCausalLM, config(LlamaConfig), torch.float32)
    ids = torch.arange(3, 8).reshape(1, 5)
    results: list[Tensor] = []
    for options in {}, EXACT:
        torch._dynamo.reset()
        with torch.no_grad():
            forward = lambda ids: model(input_ids=ids, use_cache=False).logits  # noqa: E731
            results.append(torch.compile(forward, backend="vllm_ir", dynamic=False, options=options)(ids))
    assert _counts(ir.compile_reports()[-1].fusions)["rms_norm"] == 2 * LAYERS + 1
    assert torch.equal(*results)
    assert torch.equal(results[0].argmax(-1), forward(ids).argmax(-1))
