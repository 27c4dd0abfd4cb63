"""A part of a result, of which another part is written, with a dimension of size 1."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m1 = numbers(40, torch.float32, 4)
    b = m1.as_strided((4, 6), (1, 7), 0)
    return (b,)


def program(b):
    v2, v3 = b.split(2, 0)
    v6, v7 = torch.ops.vllm_ir.fuzz_add_two(v2, v3, v2)
    v24, v25 = v7.chunk(2, 0)
    torch._foreach_zero_([v25, v6])
    return v24


def make():
    return program
