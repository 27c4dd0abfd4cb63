"""One decoding step of a small Llama, as an input for `vllm-ir-opt examples/llama_decode_step.py:decode`."""

from __future__ import annotations

import torch
from llama_decoder import DecodeStep, Size, cache_tensors, make_cache, make_model, make_step
from torch import Tensor

SIZE = Size(layers=2, hidden=128)
MODEL = make_model(SIZE)
PROMPT = torch.arange(1, 13).reshape(1, 12)

decode = DecodeStep(MODEL, SIZE).eval()


def example_inputs() -> tuple[Tensor, list[Tensor]]:
    """A token, and a cache that holds a prompt."""
    cache = make_cache(SIZE)
    with torch.no_grad():
        logits = make_step(MODEL)(PROMPT, cache)
    return logits[:, -1].argmax(-1, keepdim=True), cache_tensors(cache)
