"""Arguments whose bounds say nothing about whether they overlap."""

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
    m1 = numbers(194, torch.float64, 4)
    c = m1.as_strided((5, 5, 3), (13, 2, 65), 0)
    d = m1.as_strided((5, 5, 3), (13, 2, 65), 3)
    return (c, d)


def program(c, d):
    d.copy_(c)
    return


def make():
    return program
