"""A constant has a static size also where sizes may be dynamic."""

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
    m1 = numbers(8, torch.float64, 4)
    c = m1.view(torch.int64).as_strided((2, 4), (4, 1), 0)
    return (c,)


def program(c):
    v1 = c.view(torch.int32)
    v2 = torch.gather(v1, 0, torch.tensor([[0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]]))
    v3 = v2.unfold(0, 1, 1)
    v3.copy_(v3)
    v1.copy_(v2)
    return


def make():
    return program
