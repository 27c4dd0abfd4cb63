"""A size of a tensor whose size is settled while it is compiled."""

import torch

PATHS = ["vllm_ir"]
CALLS = 1
DYNAMIC = True
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(28, torch.float32, 6)
    a = m0.as_strided((3, 4), (8, 2), 0)
    return (a,)


def program(a):
    v1 = a.expand(-1, -1)
    v2 = torch.gather(v1, 0, torch.tensor([[0, 0, 0, 0]]))
    v1.copy_(v1)
    return v2


def make():
    return program
