"""Dynamic strides in which PyTorch writes the maximum of 1 and a size."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "interpreter"]
CALLS = 1
DYNAMIC = True
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m1 = numbers(82, torch.float32, 7)
    b = m1.as_strided((3, 3, 3, 3), (27, 1, 9, 3), 0)
    return (b,)


def program(b):
    v1 = b[2]
    v4 = torch.ops.vllm_ir.fuzz_add(v1, v1)
    v4.copy_(b.sum(0))
    v14 = v4[:2, 1::2, ::2]
    return v14 * 1


def make():
    return program
