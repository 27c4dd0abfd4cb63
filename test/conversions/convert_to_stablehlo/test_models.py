"""Whole models as StableHLO on XLA: small ones with random weights, in prefill and in decoding with a cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from vllm_ir.tools.xla import vllm_ir_xla

transformers = pytest.importorskip("transformers", reason="needs the extra demo")

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**SIZES, "vocab_size": 61, "max_position_embeddings": 64, "pad_token_id": 0}
GROUPED = {**DECODER, "num_key_value_heads": 2}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 61, "n_positions": 64}
ENDS = {"bos_token_id": 1, "eos_token_id": 2}

DECODERS: dict[str, Callable[[], Any]] = {
    "Llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
    "Qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**GROUPED, head_dim=8)),
    "GPT-2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **ENDS)),
    "GPT-NeoX": lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**DECODER, rotary_pct=0.5)),
    "Mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2)
    ),
}
QUICK = ("Llama", "Mixtral")
ENCODERS: dict[str, Callable[[], tuple[Any, dict[str, torch.Tensor]]]] = {
    "BERT": lambda: (
        transformers.BertModel(transformers.BertConfig(**DECODER)),
        {
            "input_ids": torch.arange(14).reshape(2, 7),
            "attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3]),
        },
    ),
    "ViT": lambda: (
        transformers.ViTModel(transformers.ViTConfig(**SIZES, image_size=32, patch_size=8)),
        {"pixel_values": torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))},
    ),
}

TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}
"""Sums of up to 48 products, in another order, through two layers with norms."""


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def decode(model: Any, call: Callable[..., Any], steps: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Logits of a prompt and of so many further tokens, each the most likely one; and the cache afterwards."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    tokens, position, logits = torch.tensor([[5, 17, 3, 44, 8]]), 0, list[torch.Tensor]()
    for _ in range(steps + 1):
        places = torch.arange(position, position + tokens.shape[1])
        with torch.no_grad():
            found = call(
                tokens,
                position_ids=places[None],
                cache_position=places,
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]
        logits.append(found.clone())
        position, tokens = position + tokens.shape[1], found.argmax(-1, keepdim=True)
    return logits, [part.clone() for layer in cache.layers for part in (layer.keys, layer.values)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in DECODERS]
)
def test_decoder(name: str) -> None:
    """Prompt and decoding: logits and the cache, which is updated in its own memory, are eager's."""
    torch.manual_seed(0)
    model = DECODERS[name]().eval()
    expected = decode(model, model, 3)
    compiled = torch.compile(model, backend=vllm_ir_xla, dynamic=False, fullgraph=True)
    for result, value in zip(decode(model, compiled, 3), expected, strict=True):
        torch.testing.assert_close(result, value, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = ENCODERS[name]()
    model.eval()
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        result = torch.compile(model, backend=vllm_ir_xla, dynamic=False, fullgraph=True)(**inputs).last_hidden_state
    torch.testing.assert_close(result, expected, **TOLERANCE)
