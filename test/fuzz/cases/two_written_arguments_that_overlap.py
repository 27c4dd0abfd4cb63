"""Two arguments that overlap, written by a kernel of others and through a view of views."""

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
    m1 = numbers(155, torch.float32, 1)
    c = m1.as_strided((5, 5, 3), (30, 6, 2), 0)
    d = m1.as_strided((5, 5, 3), (30, 6, 2), 6)
    return (c, d)


def program(c, d):
    torch.ops.vllm_ir_fuzz.numbers(c, 2, [1, 2], True)
    v3 = d.unfold(0, 2, 2)
    v4 = v3[:]
    v4[:] = v4
    return


def make():
    return program
