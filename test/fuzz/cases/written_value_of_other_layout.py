"""A result whose layout differs from that of its implementation is written."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "graph", "text", "interpreter", "vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {"fuzz_add": ["writes"]}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m1 = numbers(22, torch.uint8, 4)
    b = m1.as_strided((3, 3), (6, 2), 0)
    return (b,)


def program(b):
    v1 = b.select(-2, 1)
    v4 = torch.ops.vllm_ir.fuzz_add(v1, v1)
    v4[..., 0] += 4
    return


def make():
    return program
