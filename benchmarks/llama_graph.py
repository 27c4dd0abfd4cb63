"""The FX graph of a Llama-shaped decoding step of any depth, made of fake tensors: nothing is allocated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD, CACHE = 4096, 14336, 32, 8, 128, 8192
EPSILON = 1e-5


@dataclass(frozen=True)
class Layer:
    """Weights and caches of one decoder layer, bfloat16."""

    attention_norm: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    keys: Tensor
    """`(1, KV_HEADS, CACHE, HEAD)`, written by every step."""
    values: Tensor

    @classmethod
    def empty(cls) -> Layer:
        """A layer without contents, under the current fake mode."""
        sizes = {
            "attention_norm": (HIDDEN,),
            "query": (HEADS * HEAD, HIDDEN),
            "key": (KV_HEADS * HEAD, HIDDEN),
            "value": (KV_HEADS * HEAD, HIDDEN),
            "output": (HIDDEN, HEADS * HEAD),
            "mlp_norm": (HIDDEN,),
            "gate": (INTERMEDIATE, HIDDEN),
            "up": (INTERMEDIATE, HIDDEN),
            "down": (HIDDEN, INTERMEDIATE),
            "keys": (1, KV_HEADS, CACHE, HEAD),
            "values": (1, KV_HEADS, CACHE, HEAD),
        }
        return cls(**{name: torch.empty(size, dtype=torch.bfloat16) for name, size in sizes.items()})

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The layer on one token, `(1, 1, HIDDEN)`. Tracing records the lines of functions of this name only."""
        normed = rms_norm(x, self.attention_norm)
        query = rotate(_heads(normed, self.query), cos, sin)
        self.keys.index_copy_(2, position, rotate(_heads(normed, self.key), cos, sin))
        self.values.index_copy_(2, position, _heads(normed, self.value))
        attended = functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        x = x + functional.linear(attended.transpose(1, 2).reshape(1, 1, HEADS * HEAD), self.output)
        normed = rms_norm(x, self.mlp_norm)
        hidden = functional.silu(functional.linear(normed, self.gate)) * functional.linear(normed, self.up)
        return x + functional.linear(hidden, self.down)


def _heads(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x, weight).view(1, 1, -1, HEAD).transpose(1, 2)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Root-mean-square normalisation in float32, as Llama does it."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding."""
    first, second = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def decode_graph(layers: int) -> fx.GraphModule:
    """The ATen graph of one decoding step, with in-place cache writes and fake metas."""
    with FakeTensorMode():
        stack = [Layer.empty() for _ in range(layers)]
        tensors = [tensor for layer in stack for tensor in vars(layer).values()]
        x = torch.empty(1, 1, HIDDEN, dtype=torch.bfloat16)
        position = torch.empty(1, dtype=torch.int64)
        mask = torch.empty(1, 1, 1, CACHE, dtype=torch.bfloat16)
        cos, sin = torch.empty(2, 1, 1, 1, HEAD, dtype=torch.bfloat16).unbind(0)
    count = len(vars(stack[0]))

    def step(x: Tensor, position: Tensor, mask: Tensor, cos: Tensor, sin: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        for start in range(0, len(tensors), count):
            x = Layer(*tensors[start : start + count]).forward(x, position, mask, cos, sin)
        return x

    return make_fx(step, tracing_mode="real", record_stack_traces=True)(
        x, position, mask, cos.clone(), sin.clone(), tensors
    )
