"""A view whose strides eager lays out in another way, at an offset that is a symbol."""

import torch

PATHS = ["vllm_ir_eager", "interpreter"]
CALLS = 1
DYNAMIC = True
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(9, torch.bool, 0)
    a = m0.as_strided((2,), (1,), 2)
    return (a,)


def program(a):
    v3 = a.expand(2, -1)
    v5 = v3[:-1, :-1]
    return v5.view_as(v5)


def make():
    return program
