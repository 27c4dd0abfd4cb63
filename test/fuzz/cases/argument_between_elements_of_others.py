"""Memory of an argument that lies between the elements of two others, which overlap."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "graph", "interpreter"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(8, torch.int64, 3)
    a = m0.as_strided((2, 1), (2, 2), 0)
    b = m0.as_strided((2, 1), (2, 2), 1)
    d = m0.view(torch.float64).as_strided((2, 1), (2, 2), 0)
    return (a, b, d)


def program(a, b, d):
    torch.ops.vllm_ir_fuzz.two(a, b * 2, b)
    return b.view_as(b)


def make():
    return program
