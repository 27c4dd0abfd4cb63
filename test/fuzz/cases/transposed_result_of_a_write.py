"""The argument itself, by way of a write and of metadata that change in place."""

import torch

PATHS = ["vllm_ir_eager", "graph", "interpreter"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m1 = numbers(2, torch.float32, 4)
    b = m1.as_strided((2,), (1,), 0)
    return (b,)


def program(b):
    b.add_(1)
    b.transpose_(0, 0)
    return b


def make():
    return program
