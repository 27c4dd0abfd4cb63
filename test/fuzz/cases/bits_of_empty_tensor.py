"""Bits of an empty tensor with strides that lead nowhere."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "graph", "interpreter"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {"fuzz_add": ["writes"]}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m1 = numbers(1, torch.int64, 4)
    b = m1.as_strided((4, 4, 0), (1, 4, 16), 0)
    return (b,)


def program(b):
    v1 = torch.ops.vllm_ir.fuzz_add(b, b)
    v1.view(torch.int32)
    return


def make():
    return program
