"""A final write of a window that comes up only at the end."""

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
    m0 = numbers(6, torch.uint8, 3)
    m1 = numbers(1, torch.float32, 4)
    a = m0.as_strided((2, 2), (3, 1), 1)
    b = m1.as_strided((), (), 0)
    return (a, b)


def program(a, b):
    a.copy_(b)
    v4 = a.as_strided((2, 2), (2, 1), 2)
    v4.copy_(v4)
    return


def make():
    return program
