"""A result of dynamic size with permuted strides."""

import torch

PATHS = ["vllm_ir_eager"]
CALLS = 1
DYNAMIC = True
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m2 = numbers(40, torch.float32, 8)
    c = m2.as_strided((5, 2, 2, 2), (8, 4, 2, 1), 0)
    return (c,)


def program(c):
    v4 = c.diagonal(0, 0, 2)
    v4[1, 1:] = 1
    return v4 * 1


def make():
    return program
