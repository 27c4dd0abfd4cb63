"""An argument and every fourth element of its memory, both of which are written."""

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
    m0 = numbers(16, torch.float32, 6)
    a = m0.as_strided((4, 2), (2, 1), 3)
    return (a,)


def program(a):
    a.copy_(a)
    v22 = a.as_strided((3,), (4,), 5)
    v22.copy_(v22)
    return


def make():
    return program
