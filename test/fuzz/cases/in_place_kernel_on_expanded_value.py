"""An operand of a kernel that writes is an expanded value: the kernel is passed over."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "graph", "text", "interpreter", "vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {"fuzz_add_two": ["writes"]}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    return numbers(1, torch.float32, 3), numbers(9, torch.float32, 4).view(3, 3)


def program(a, b):
    b[...] = a
    return torch.ops.vllm_ir.fuzz_add_two(b, b, b)


def make():
    return program
