"""One decoding step of a small paged decoder, for `vllm-ir-opt examples/paged_decode_step.py:decode`.

All layers' keys and values are in one tensor, and operands of norms and rotations are given away.
"""

from __future__ import annotations

import torch
from paged_model import Places, Size, make_block_table, make_cache, make_model, make_step, places_at, registered
from torch import Tensor, nn

SIZE = Size(layers=2, hidden=64, vocabulary=100, blocks=8)


class DecodeStep(nn.Module):
    """A step whose places are tensors of their own: a form that can be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_model(SIZE, registered())

    def forward(self, ids: Tensor, positions: Tensor, slots: Tensor, table: Tensor, cache: Tensor) -> Tensor:
        """Logits of the tokens `ids`, shape `(sequences, 1)`; the cache is written."""
        return make_step(self.model)(ids, Places(positions, slots, table), cache)


decode = DecodeStep().eval()


def example_inputs() -> tuple[Tensor, ...]:
    """A token of each sequence, behind twelve others."""
    places = places_at(make_block_table(SIZE), 12, 1)
    return torch.tensor([[3], [5]]), places.positions, places.slots, places.table, make_cache(SIZE)
