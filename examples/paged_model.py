"""A small Llama-shaped decoder of `vllm_ir` ops with a paged KV cache, and greedy decoding with it.

The cache of all layers is one tensor of blocks. A sequence owns blocks anywhere in it, listed in its row of the block
table; keys and values of a token go to a *slot*, which is a place in a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from side_by_side import Generation, greedy
from torch import Tensor, nn
from torch.nn import functional as F

import vllm_ir as ir

HEADS, KV_HEADS, BLOCK = 8, 4, 16
EPSILON = 1e-5

Caches = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of each layer, `(blocks, BLOCK, KV_HEADS, head)`."""


@dataclass(frozen=True)
class Size:
    """Size of the model and its cache; the other sizes follow from these."""

    layers: int = 4
    hidden: int = 256
    vocabulary: int = 1000
    sequences: int = 2
    length: int = 32
    """Tokens that a sequence may have."""
    blocks: int = 64
    """Blocks in the cache; as a rule many more than these sequences need."""

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.hidden // HEADS

    @property
    def table_width(self) -> int:
        """Blocks of a sequence."""
        return -(-self.length // BLOCK)


@dataclass(frozen=True)
class Functions:
    """The functions that the model calls. The first two arguments of `add_rms_norm`, and query and key of `rotate`, are
    given away: they may be overwritten, so the model does not use them again.
    """

    rms_norm: Callable[..., Tensor]
    add_rms_norm: Callable[..., tuple[Tensor, Tensor]]
    rotate: Callable[..., tuple[Tensor, Tensor]]
    silu_and_mul: Callable[..., Tensor]


def registered() -> Functions:
    """The ops of `vllm_ir`."""
    ops: Any = ir.ops
    rotate = ops.rotary_embedding.maybe_inplace
    return Functions(ops.rms_norm, ops.fused_add_rms_norm.maybe_inplace, rotate, ops.silu_and_mul)


def native() -> Functions:
    """Their definitions: plain PyTorch, which a compiler sees into that does not know the ops."""
    ops: Any = ir.ops
    return Functions(
        ops.rms_norm.native, ops.fused_add_rms_norm.native, ops.rotary_embedding.native, ops.silu_and_mul.native
    )


@dataclass(frozen=True)
class Places:
    """Where the tokens of a call stand, and where their sequences' keys and values are."""

    positions: Tensor
    """`(sequences, n)`."""
    slots: Tensor
    """`(sequences * n,)`, all different."""
    table: Tensor
    """`(sequences, table_width)`."""


Step = Callable[[Tensor, Places, Tensor], Tensor]
"""Token ids `(sequences, n)`, their places, and the cache, which it writes, to logits `(sequences, n, vocabulary)`."""


class Attention(nn.Module):
    """Grouped-query attention to the tokens in a paged cache."""

    def __init__(self, size: Size, functions: Functions) -> None:
        super().__init__()
        self.functions = functions
        self.head = size.head
        self.widths = [HEADS * self.head, KV_HEADS * self.head, KV_HEADS * self.head]
        self.qkv = nn.Linear(size.hidden, sum(self.widths), bias=False)
        self.output = nn.Linear(size.hidden, size.hidden, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, places: Places, rotations: Tensor) -> Tensor:
        """Write the keys and values of `x` to their slots, then attend to all up to each token's position."""
        query, key, value = self.qkv(x).split(self.widths, -1)
        query, key = self.functions.rotate(places.positions, query, key, self.head, rotations, True)
        for cache, new in ((keys, key), (values, value)):
            cache.view(-1, KV_HEADS, self.head)[places.slots] = new.reshape(-1, KV_HEADS, self.head)
        context = torch.arange(places.table.shape[1] * BLOCK, device=x.device)
        attended = F.scaled_dot_product_attention(
            query.unflatten(-1, (HEADS, self.head)).transpose(1, 2),
            keys[places.table].flatten(1, 2).transpose(1, 2),
            values[places.table].flatten(1, 2).transpose(1, 2),
            attn_mask=(context <= places.positions.unsqueeze(-1)).unsqueeze(1),
            enable_gqa=True,
        )
        return self.output(attended.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    """A decoder layer."""

    def __init__(self, size: Size, functions: Functions) -> None:
        super().__init__()
        self.functions = functions
        self.attention = Attention(size, functions)
        self.attention_norm = _norm_weight(size)
        self.mlp_norm = _norm_weight(size)
        intermediate = size.hidden * 11 // 4
        self.gate_and_up = nn.Linear(size.hidden, 2 * intermediate, bias=False)
        self.down = nn.Linear(intermediate, size.hidden, bias=False)

    def forward(
        self, x: Tensor | None, residual: Tensor, cache: tuple[Tensor, Tensor], places: Places, rotations: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The MLP's result, which is not yet added, and the residual stream; `x` is that of the layer before."""
        if x is None:
            normed = self.functions.rms_norm(residual, self.attention_norm, EPSILON)
        else:
            normed, residual = self.functions.add_rms_norm(x, residual, self.attention_norm, EPSILON)
        attended = self.attention(normed, *cache, places, rotations)
        normed, residual = self.functions.add_rms_norm(attended, residual, self.mlp_norm, EPSILON)
        return self.down(self.functions.silu_and_mul(self.gate_and_up(normed))), residual


class PagedDecoder(nn.Module):
    """The model."""

    def __init__(self, size: Size, functions: Functions) -> None:
        super().__init__()
        self.functions = functions
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.layers = nn.ModuleList(Layer(size, functions) for _ in range(size.layers))
        self.norm = _norm_weight(size)
        self.unembedding = nn.Linear(size.hidden, size.vocabulary, bias=False)
        frequencies = 10000.0 ** -(torch.arange(0, size.head, 2) / size.head)
        angles = torch.outer(torch.arange(size.table_width * BLOCK), frequencies)
        self.rotations = nn.Buffer(torch.cat((angles.cos(), angles.sin()), -1))

    def forward(self, ids: Tensor, places: Places, caches: Caches) -> Tensor:
        """Logits of every token, `(sequences, n, vocabulary)`; the caches are written."""
        x, residual = None, self.embedding(ids)
        for layer, cache in zip(self.layers, caches, strict=True):
            x, residual = layer(x, residual, cache, places, self.rotations)
        normed, _ = self.functions.add_rms_norm(x, residual, self.norm, EPSILON)
        return self.unembedding(normed)


def _norm_weight(size: Size) -> nn.Parameter:
    return nn.Parameter(0.5 + torch.rand(size.hidden))


def make_model(size: Size, functions: Functions) -> PagedDecoder:
    """A float32 model for inference, with the same random weights each time."""
    torch.manual_seed(0)
    return PagedDecoder(size, functions).eval().requires_grad_(False)


def make_step(model: PagedDecoder) -> Step:
    """The function to compile; the cache of all layers is one tensor."""

    def step(ids: Tensor, places: Places, cache: Tensor) -> Tensor:
        caches = [(cache[layer, 0], cache[layer, 1]) for layer in range(cache.shape[0])]
        return model(ids, places, caches)

    return step


def make_cache(size: Size) -> Tensor:
    """An empty cache, `(layers, 2, blocks, BLOCK, KV_HEADS, head)`."""
    return torch.zeros(size.layers, 2, size.blocks, BLOCK, KV_HEADS, size.head)


def make_block_table(size: Size) -> Tensor:
    """A block table whose sequences lie scattered over the cache; the same one each time."""
    order = torch.randperm(size.blocks, generator=torch.Generator().manual_seed(0))
    return order[: size.sequences * size.table_width].reshape(size.sequences, size.table_width)


def places_at(table: Tensor, start: int, count: int) -> Places:
    """The places of `count` tokens of each sequence from position `start` on."""
    positions = torch.arange(start, start + count)
    slots = table[:, positions // BLOCK] * BLOCK + positions % BLOCK
    return Places(positions.repeat(table.shape[0], 1), slots.flatten(), table)


def generate(step: Step, prompt: Tensor, cache: Tensor, table: Tensor, steps: int) -> Generation:
    """Run the prompts, `(sequences, n)`, and then `steps` greedy steps, from an empty cache."""
    cache.zero_()
    length = prompt.shape[1]
    calls = iter([places_at(table, 0, length), *(places_at(table, length + i, 1) for i in range(steps))])
    return greedy(lambda ids: step(ids, next(calls), cache), prompt, steps)
