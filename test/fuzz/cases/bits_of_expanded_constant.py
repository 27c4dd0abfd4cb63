"""Bits of a constant, which are no number, become those of an argument."""

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
    m3 = numbers(25, torch.float64, 6)
    d = m3.as_strided((5, 5), (5, 1), 0)
    return (d,)


def program(d):
    v3 = d.view(torch.int64)
    v3.copy_(torch.tensor(-2))
    return


def make():
    return program
