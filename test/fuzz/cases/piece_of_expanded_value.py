"""A piece of one element is put into an expanded value, where it is all other elements too."""

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
    m3 = numbers(4, torch.float32, 10)
    b = m3.as_strided((2, 2), (2, 1), 0)
    return (b,)


def program(b):
    v5 = b.copy_(torch.tensor(False))
    v5[0, 1:] = True
    return v5.view_as(v5)


def make():
    return program
