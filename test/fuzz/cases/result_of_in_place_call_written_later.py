"""A call that writes an argument in place also gives a new tensor, of which a window is written later."""

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
    return numbers(20, torch.complex64, 7).view(5, 2, 2), numbers(20, torch.complex64, 7).view(5, 2, 2)


def program(b, c):
    v1 = torch.ops.vllm_ir_fuzz.optional(b, cache=c)
    v3 = v1.tensor_split(1, 1)[-1]
    v3.scatter_(0, torch.full_like(c[:2][:1], 0, dtype=torch.int64), c[:2])
    return v1


def make():
    return program
