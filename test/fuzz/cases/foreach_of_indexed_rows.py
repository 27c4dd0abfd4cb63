"""Operators on lists whose result has the size of a constant of indices."""

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
    m1 = numbers(6, torch.float32, 4)
    b = m1.as_strided((2, 3), (3, 1), 0)
    return (b,)


def program(b):
    v5 = b.t().clone()
    v6 = b[-2]
    v7 = v5[[2, 0]]
    v8 = v6.narrow(0, 1, 1)
    torch._foreach_mul_([v7], [v8])
    return


def make():
    return program
