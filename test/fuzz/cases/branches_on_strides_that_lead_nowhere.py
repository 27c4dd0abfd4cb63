"""Branches get operands of size 1 whose strides lead nowhere, and PyTorch compares theirs."""

import torch

PATHS = ["vllm_ir_eager", "interpreter"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(47, torch.float32, 3)
    d = m0.as_strided((3, 2, 2, 3), (1, 4, 8, 16), 0)
    return (d,)


def branch_v5(x, y):
    z = torch.where(x > y, x, y)
    z.copy_(y)
    return (z,)


def branch_v6(x, y):
    z = x.clone()
    return (z,)


def program(d):
    v1 = d.as_strided((1, 2), (1, 1), 44)
    v3, v4 = v1.split(1, 1)
    torch.cond((v3 == 0).all(), branch_v5, branch_v6, (v4, v3))
    return d


def make():
    return program
