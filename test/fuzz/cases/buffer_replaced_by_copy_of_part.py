"""A buffer that is replaced by a copy of a part of what is written does not keep the whole in memory."""

import torch

PATHS = ["vllm_ir_eager"]
CALLS = 2
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    if call == 0:
        m1 = numbers(9, torch.int32, 1)
        a = m1.as_strided((), (), 0)
        b = m1.as_strided((3, 3), (3, 1), 0)
        return (a, b)
    m1 = numbers(9, torch.int32, 4)
    a = m1.as_strided((), (), 0)
    b = m1.as_strided((3, 3), (3, 1), 0)
    return (a, b)


class Program(torch.nn.Module):
    def __init__(self):
        super().__init__()
        m0 = numbers(4, torch.float32, 0)
        buffer0 = m0.as_strided((4,), (1,), 0)
        self.register_buffer("h0", buffer0)

    def forward(self, a, b):
        b.add_(1)
        self.h0 = a.clone()
        return


def make():
    return Program()
