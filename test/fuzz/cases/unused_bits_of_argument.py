"""Bits of an argument, which nobody uses."""

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
    m2 = numbers(6, torch.float32, 5)
    m3 = numbers(54, torch.float32, 6)
    c = m2.as_strided((2, 3), (3, 1), 0)
    d = m3.as_strided((2, 3, 3, 3), (27, 9, 3, 1), 0)
    return (c, d)


def program(c, d):
    c.view(torch.float16)
    return d * 1


def make():
    return program
