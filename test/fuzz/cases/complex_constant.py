"""A constant of complex numbers."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m1 = numbers(81, torch.complex64, 7)
    b = m1.as_strided((3, 3, 3, 3), (27, 9, 3, 1), 0)
    return (b,)


def program(b):
    return torch.ops.vllm_ir_fuzz.pure(b, b)


def make():
    return program
