"""A write by a mask behind a scatter to the same memory."""

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
    m3 = numbers(20, torch.float64, 6)
    d = m3.as_strided((4, 5), (5, 1), 0)
    return (d,)


def program(d):
    d.index_put_((torch.tensor([1, 3, 2]),), torch.tensor(0.5, dtype=torch.float64))
    d.index_put_((d > 1,), torch.tensor(1, dtype=torch.float64))
    return d * 1


def make():
    return program
