"""Bits of a number that was expanded to a dimension of size 1."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m2 = numbers(1, torch.int16, 5)
    d = m2.as_strided((), (), 0)
    return (d,)


def program(d):
    v1 = d.unsqueeze(0)
    v2 = torch.ops.vllm_ir.fuzz_add(d, d)
    v1.copy_(v2)
    v17 = v1.view(torch.uint8)
    return v17 * 1


def make():
    return program
