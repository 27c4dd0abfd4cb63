"""The last piece of a part of an expanded value is written."""

import torch

PATHS = ["vllm_ir_eager", "graph", "text", "interpreter", "vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m1 = numbers(5, torch.float32, 10)
    b = m1.as_strided((5,), (1,), 0)
    return (b,)


def program(b):
    b.copy_(torch.tensor(-3))
    v7 = b[-2:]
    _, v9 = v7.chunk(2, 0)
    v9.add_(1)
    return


def make():
    return program
