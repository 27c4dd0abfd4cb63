"""A custom operator that goes by the strides of a diagonal, which was written."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "interpreter"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(18, torch.float32, 6)
    b = m0.as_strided((3, 6), (6, 1), 0)
    return (b,)


def program(b):
    v2 = b[None]
    v4 = v2.diagonal(-1, 1, 2)
    v4.add_(1)
    v5 = torch.ops.vllm_ir_fuzz.flat(v4)
    return v5


def make():
    return program
