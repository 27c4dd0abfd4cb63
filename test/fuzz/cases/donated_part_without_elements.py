"""A window without elements is donated, which gives nothing of the argument away."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

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
    b = numbers(6, torch.float32, 4)
    return (b,)


def program(b):
    b.sub_(2)
    empty = b[5:0]
    torch.ops.vllm_ir.fuzz_add.maybe_inplace(empty, empty)
    return b


def make():
    return program
