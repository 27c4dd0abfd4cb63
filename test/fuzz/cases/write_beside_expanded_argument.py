"""A column of an expanded argument is written, and with it all others: refused."""

import torch

PATHS = ["vllm_ir_eager", "graph", "text", "interpreter", "vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    return (numbers(6, torch.float32, 3).as_strided((6, 2), (1, 0)),)


def program(a):
    a[:, 1].add_(1)
    return a * 1


def make():
    return program
