"""A view of an expanded argument, which XLA may not write."""

import torch

PATHS = ["vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m2 = numbers(5, torch.float32, 11)
    c = m2.as_strided((6, 2, 2), (0, 2, 1), 0)
    return (c,)


def program(c):
    v3 = c.squeeze(2)
    return v3


def make():
    return program
