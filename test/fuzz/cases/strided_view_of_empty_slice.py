"""A strided view of a slice without elements, which begins behind the start of its memory."""

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
    m0 = numbers(36, torch.float32, 3)
    a = m0.as_strided((3, 2, 2, 3), (12, 6, 3, 1), 0)
    return (a,)


def program(a):
    v5 = a[None]
    v20 = v5.narrow(4, 1, 0)
    v20.as_strided((1, 1), (3, 1), 32)
    return v5.view_as(v5)


def make():
    return program
