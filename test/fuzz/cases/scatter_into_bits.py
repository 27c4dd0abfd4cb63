"""A copy into numbers, whose bits are written as well."""

import torch

PATHS = ["vllm_ir"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(6, torch.bfloat16, 3)
    a = m0.as_strided((3, 2), (2, 1), 0)
    return (a,)


def program(a):
    v1 = a.view(torch.int16)
    v2 = a.diagonal(1, 0, 1)
    v3, v4 = v1.chunk(2, 1)
    v4.copy_(v4)
    v2.add_(1)
    v3.copy_(v2)
    return


def make():
    return program
