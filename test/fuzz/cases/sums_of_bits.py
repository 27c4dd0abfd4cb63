"""Integers that are added to the bits of an argument."""

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
    m2 = numbers(20, torch.float64, 5)
    c = m2.as_strided((4, 5), (5, 1), 0)
    return (c,)


def program(c):
    v6 = c.view(torch.int64)
    c.add_(1)
    v6.index_put_((torch.tensor([2, 2]),), torch.tensor(1, dtype=torch.int64), True)
    return


def make():
    return program
