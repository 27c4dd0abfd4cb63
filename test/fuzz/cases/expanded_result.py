"""A new tensor is returned expanded, twice."""

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
    m0 = numbers(101, torch.int64, 3)
    m1 = numbers(2, torch.float32, 4)
    a = m0.as_strided((5, 5, 4), (20, 4, 1), 0)
    b = m1.as_strided((), (), 0)
    return (a, b)


def program(a, b):
    v1 = b * 0.5
    v11 = v1.expand(2)
    return (
        v11,
        a,
        a,
        v11,
        a,
    )


def make():
    return program
