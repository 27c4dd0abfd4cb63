"""Two arguments are the same window; the one that is returned is told apart from the other."""

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
    m0 = numbers(7, torch.float32, 3)
    return m0.as_strided((), (), 0), m0.as_strided((), (), 0)


def program(a, c):
    torch.mul(c, c, out=a)
    return a


def make():
    return program
