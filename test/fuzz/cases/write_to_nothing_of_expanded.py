"""A window without elements onto an expanded tensor is written, which changes nothing."""

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
    return numbers(5, torch.float32, 6), numbers(5, torch.float32, 6)


def program(b, c):
    nothing = c.expand(2, -1)[2:]
    torch._foreach_zero_([nothing, b])


def make():
    return program
