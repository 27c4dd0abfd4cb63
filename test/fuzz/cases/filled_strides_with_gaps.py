"""An operator whose fake lays out its result in another way than the kernel, imported without Dynamo."""

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
    m1 = numbers(58, torch.float32, 4)
    b = m1.as_strided((1, 3, 3, 3), (18, 2, 6, 18), 0)
    return (b,)


def program(b):
    v2 = b.index_fill(3, torch.tensor([1]), -2)
    return v2


def make():
    return program
