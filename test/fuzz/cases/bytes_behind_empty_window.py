"""A byte of memory that an argument without elements lies on."""

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
    m0 = numbers(12, torch.float32, 3)
    a = m0.as_strided((2, 0, 6), (6, 6, 1), 0)
    return (a,)


def program(a):
    v1 = a.view(torch.uint8)
    v1.as_strided((1,), (2,))
    return v1


def make():
    return program
