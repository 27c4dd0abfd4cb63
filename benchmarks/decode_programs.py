"""The programs of `decode.py`: two decoders, a prompt, and the two blocks of a decoder layer by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import llama_decoder
import paged_model
import torch
from interleaved import Program
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import StaticCache

PROMPT_LENGTH = 64
CONTEXT = 128
VOCABULARY = 1000


@dataclass(frozen=True)
class Shape:
    """Sizes of the programs."""

    layers: int
    hidden: int
    tokens: int
    """Tokens of the blocks."""
    blocks: int
    """Blocks of the paged cache."""
    sequences: int
    """Sequences of the paged decoder."""


@dataclass(frozen=True)
class Case:
    """A program, and the forms of it that plain Inductor gets: the program itself first, then others."""

    program: Program
    baselines: Mapping[str, Program]


def same(program: Program) -> Case:
    """A case in which Inductor gets the very same program."""
    return Case(program, {"inductor": program})


def llama_decode(shape: Shape) -> Case:
    """A decoding step of the Llama demo."""
    return same(_llama(shape, cached=PROMPT_LENGTH, count=1))


def llama_prefill(shape: Shape) -> Case:
    """The prompt of the Llama demo."""
    return same(_llama(shape, cached=0, count=PROMPT_LENGTH))


def _llama(shape: Shape, cached: int, count: int) -> Program:
    size = llama_decoder.Size(shape.layers, shape.hidden, VOCABULARY, CONTEXT)
    step = llama_decoder.make_step(llama_decoder.make_model(size))

    def make_arguments() -> tuple[Tensor, StaticCache]:
        cache = llama_decoder.make_cache(size)
        if cached:
            step(_ids(1, cached), cache)
        return _ids(1, count), cache

    def reset(arguments: tuple[Tensor, StaticCache]) -> None:
        for length in llama_decoder.cache_tensors(arguments[1])[2::3]:
            length.fill_(cached)

    return Program(step, make_arguments, lambda arguments: llama_decoder.cache_tensors(arguments[1]), reset)


def paged_decode(shape: Shape) -> Case:
    """A decoding step of the paged decoder.

    Inductor gets the definitions of the ops, into which it can see, and also separate caches for all keys and values,
    which it can update in place.
    """
    size = paged_model.Size(shape.layers, shape.hidden, VOCABULARY, shape.sequences, CONTEXT, shape.blocks)
    table = paged_model.make_block_table(size)
    places = paged_model.places_at(table, CONTEXT - 1, 1)
    ids = _ids(shape.sequences, 1)

    def make_cache() -> Tensor:
        return torch.randn(paged_model.make_cache(size).shape, generator=torch.Generator().manual_seed(0))

    def of_layers(cache: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [(keys.clone(), values.clone()) for keys, values in cache]

    ours = paged_model.make_model(size, paged_model.registered())
    theirs = paged_model.make_model(size, paged_model.native())

    def stacked(model: paged_model.PagedDecoder) -> Program:
        return Program(
            paged_model.make_step(model),
            lambda: (ids, places, make_cache()),
            lambda arguments: list(arguments[2].flatten(0, 1)),
        )

    separate = Program(
        theirs,
        lambda: (ids, places, of_layers(make_cache())),
        lambda arguments: [tensor for layer in arguments[2] for tensor in layer],
    )
    return Case(stacked(ours), {"inductor": stacked(theirs), "inductor, separate caches": separate})


def _ids(sequences: int, count: int) -> Tensor:
    return torch.arange(1, 1 + sequences * count).remainder(VOCABULARY).reshape(sequences, count)


class Mlp(nn.Module):
    """Norm, gated MLP and residual."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        intermediate = hidden * 11 // 4
        self.norm = nn.RMSNorm(hidden, 1e-5)
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of `(tokens, hidden)`."""
        normed = self.norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Attention(nn.Module):
    """Norm, attention spelled out, and residual."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads = (paged_model.HEADS, hidden // paged_model.HEADS)
        self.norm = nn.RMSNorm(hidden, 1e-5)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Of `(sequences, tokens, hidden)`."""
        query, key, value = (
            part.unflatten(-1, self.heads).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / self.heads[1] ** 0.5
        attended = torch.matmul(self.dropout(scores.softmax(-1)), value)
        return x + self.output(attended.transpose(1, 2).flatten(-2))


def mlp(shape: Shape) -> Case:
    """The MLP of a layer."""
    return same(_block(lambda: Mlp(shape.hidden), (shape.tokens, shape.hidden)))


def attention(shape: Shape) -> Case:
    """The attention of a layer."""
    return same(_block(lambda: Attention(shape.hidden, 0.0), (2, shape.tokens, shape.hidden)))


def attention_dropout(shape: Shape) -> Case:
    """The same with dropout in the program, which inference switches off."""
    return same(_block(lambda: Attention(shape.hidden, 0.1), (2, shape.tokens, shape.hidden)))


def _block(make: Callable[[], nn.Module], shape: Sequence[int]) -> Program:
    torch.manual_seed(0)
    block = make().eval().requires_grad_(False)
    x = torch.randn(*shape)
    return Program(block, lambda: (x,))


CASES: Mapping[str, Callable[[Shape], Case]] = {
    "llama-decode": llama_decode,
    "paged-decode": paged_decode,
    "prefill": llama_prefill,
    "mlp": mlp,
    "attention": attention,
    "attention-dropout": attention_dropout,
}
