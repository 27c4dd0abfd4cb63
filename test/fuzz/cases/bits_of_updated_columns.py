"""Bits of an updated copy of columns, which may not become the columns themselves."""

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
    m0 = numbers(16, torch.float32, 3)
    a = m0.as_strided((4, 4), (4, 1), 0)
    return (a,)


def program(a):
    v10 = a[:, :-1:2]
    v17 = v10.index_put((torch.tensor([1]),), v10[:1])
    a.add_(1)
    v17.view(torch.int16)
    return


def make():
    return program
