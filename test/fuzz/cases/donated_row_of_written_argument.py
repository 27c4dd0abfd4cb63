"""A row of an argument is donated; what is written to the other rows must not get lost."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "graph", "text", "interpreter", "vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {"fuzz_add": ["spoils"]}
UNDEFINED = {0: [(0, "float32", (4,), (1,), 0)]}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    return numbers(12, torch.float32, 0).view(3, 4), numbers(4, torch.float32, 1)


def program(c, y):
    c.add_(1)
    return torch.ops.vllm_ir.fuzz_add.maybe_inplace(c[0], y)


def make():
    return program
