"""As before, and one of them is returned as well."""

import torch

PATHS = ["vllm_ir_eager", "vllm_ir"]
CALLS = 2
DYNAMIC = False
PROVIDERS = {}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    if call == 0:
        m0 = numbers(80, torch.float32, 3)
        a = m0.as_strided((4, 6), (6, 1), 0)
        c = m0.view(torch.int32).as_strided((4, 6), (6, 1), 0)
        return (a, c)
    m0 = numbers(24, torch.float32, 6)
    m1 = numbers(24, torch.int32, 7)
    a = m0.as_strided((4, 6), (6, 1), 0)
    c = m1.as_strided((4, 6), (6, 1), 0)
    return (a, c)


def program(a, c):
    a.expand(-1, -1)
    return (
        c * 1,
        c.view_as(c),
    )


def make():
    return program
