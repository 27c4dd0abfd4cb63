"""A window of an argument and memory behind it, both of which are written."""

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
    m1 = numbers(36, torch.float32, 10)
    m3 = numbers(29, torch.float32, 9)
    b = m3.as_strided((5, 2), (5, 1), 2)
    c = m1.as_strided((2, 2, 3, 3), (18, 9, 3, 1), 0)
    return (b, c)


def program(b, c):
    v1 = b.as_strided((1,), (1,), 9)
    c.add_(1)
    b.add_(1)
    v1.add_(1)
    return


def make():
    return program
