"""Whole models as StableHLO on XLA: small ones with random weights, in prefill and in decoding with a cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vllm_ir.tools.operators import models
from vllm_ir.tools.xla import vllm_ir_xla

transformers = pytest.importorskip("transformers", reason="needs the extra demo")

QUICK = ("Llama", "Mixtral")

TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}
"""Sums of up to 48 products, in another order, through two layers with norms."""


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def decode(model: Any, call: Callable[..., Any], steps: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Logits of a prompt and of so many further tokens, each the most likely one; and the cache afterwards."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=models.CACHE_LENGTH)
    tokens, position, logits = torch.tensor([[5, 17, 3, 44, 8]]), 0, list[torch.Tensor]()
    for _ in range(steps + 1):
        with torch.no_grad():
            found = call(**models.decoder_inputs(tokens, position, cache)).logits[:, -1]
        logits.append(found.clone())
        position, tokens = position + tokens.shape[1], found.argmax(-1, keepdim=True)
    return logits, [part.clone() for layer in cache.layers for part in (layer.keys, layer.values)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in models.DECODERS]
)
def test_decoder(name: str) -> None:
    """Prompt and decoding: logits and the cache, which is updated in its own memory, are eager's."""
    model = models.build(name)
    expected = decode(model, model, 3)
    compiled = torch.compile(model, backend=vllm_ir_xla, dynamic=False, fullgraph=True)
    for result, value in zip(decode(model, compiled, 3), expected, strict=True):
        torch.testing.assert_close(result, value, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", models.ENCODERS)
def test_encoder(name: str) -> None:
    model, inputs = models.build(name), models.encoder_inputs(name)
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        result = torch.compile(model, backend=vllm_ir_xla, dynamic=False, fullgraph=True)(**inputs).last_hidden_state
    torch.testing.assert_close(result, expected, **TOLERANCE)


def test_operators_of_a_model_are_those_in_the_file() -> None:
    """What the documentation says of models: all their operators convert."""
    stored = models.read(Path(__file__).parents[3] / "docs" / "stablehlo.md")
    assert {outcome for operators in stored.values() for outcome in operators.values()} == {"converted"}
    assert set(stored) >= {*models.DECODERS, *models.ENCODERS}
    assert models.operators_of("Llama") == stored["Llama"], "run python -m vllm_ir.tools.operators.models"
