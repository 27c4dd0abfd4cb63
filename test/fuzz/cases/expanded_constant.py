"""A constant is returned expanded: its elements are one."""

import torch

PATHS = ["vllm_ir_eager", "vllm_ir"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(25, torch.float32, 3)
    a = m0.as_strided((5, 5), (5, 1), 0)
    return (a,)


def program(a):
    v6 = torch.tensor([-3], dtype=torch.float32)
    v7 = v6.expand(2, 3)
    return v7


def make():
    return program
