"""A small Llama with random weights and a static KV cache, and greedy decoding with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded: the weights are random

import torch
from side_by_side import Generation, greedy
from side_by_side import largest_difference as largest_difference
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
from transformers.cache_utils import StaticLayer

HEADS, KV_HEADS = 8, 4

Step = Callable[[Tensor, StaticCache], Tensor]
"""Token ids `(1, n)` and a cache, which it writes, to logits `(1, n, vocabulary)`."""


@dataclass(frozen=True)
class Size:
    """Size of the model; the other sizes follow from these."""

    layers: int = 4
    hidden: int = 256
    vocabulary: int = 1000
    cache_length: int = 64

    def config(self) -> LlamaConfig:
        """The configuration for transformers."""
        return LlamaConfig(
            num_hidden_layers=self.layers,
            hidden_size=self.hidden,
            intermediate_size=self.hidden * 11 // 4,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            vocab_size=self.vocabulary,
            max_position_embeddings=self.cache_length,
        )


def make_model(size: Size) -> LlamaForCausalLM:
    """A float32 model for inference, the same one each time."""
    torch.manual_seed(0)
    return LlamaForCausalLM(size.config()).eval().requires_grad_(False)


def make_cache(size: Size) -> StaticCache:
    """An empty cache whose tensors exist already, so that compiled code need not make them."""
    cache = StaticCache(config=size.config(), max_cache_len=size.cache_length)
    cache.early_initialization(1, KV_HEADS, size.hidden // HEADS, torch.float32, torch.device("cpu"))
    return cache


def cache_tensors(cache: StaticCache) -> list[Tensor]:
    """Everything that a step writes: keys, values and the number of cached tokens of each layer."""
    tensors = [tensor for layer in _layers(cache) for tensor in (layer.keys, layer.values, layer.cumulative_length)]
    return [tensor for tensor in tensors if tensor is not None]


def _layers(cache: StaticCache) -> list[StaticLayer]:
    return [layer for layer in cache.layers if isinstance(layer, StaticLayer)]  # Llama has no others


def make_step(model: LlamaForCausalLM) -> Step:
    """The function to compile."""

    def step(ids: Tensor, cache: StaticCache) -> Tensor:
        return model(input_ids=ids, cache=cache, use_cache=True).logits

    return step


class DecodeStep(nn.Module):
    """A step whose cache is a list of tensors, in the order of `cache_tensors`: a form that can be exported."""

    def __init__(self, model: LlamaForCausalLM, size: Size) -> None:
        super().__init__()
        self.model = model
        self.size = size

    def forward(self, ids: Tensor, tensors: list[Tensor]) -> Tensor:
        """Logits of the token `ids`, shape `(1, 1)`; the tensors are written."""
        cache = StaticCache(config=self.model.config, max_cache_len=self.size.cache_length)
        for index, layer in enumerate(_layers(cache)):
            layer.keys, layer.values, layer.cumulative_length = tensors[3 * index : 3 * index + 3]
            layer.device = ids.device
            layer.is_initialized = True
        return self.model(input_ids=ids, cache=cache, use_cache=True).logits


def generate(step: Step, prompt: Tensor, cache: StaticCache, steps: int) -> Generation:
    """Run the prompt and then `steps` greedy steps, from an empty cache."""
    cache.reset()
    return greedy(lambda ids: step(ids, cache), prompt, steps)
