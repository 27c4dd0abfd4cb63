"""Arguments of two dtypes share memory in the first call, not in the second; nothing is written."""

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
        m0 = numbers(4, torch.int32, 3)
        a = m0.as_strided((1,), (1,), 0)
        b = m0.view(torch.float32).as_strided((1,), (1,), 0)
        return (a, b)
    m0 = numbers(1, torch.int32, 6)
    m1 = numbers(1, torch.float32, 7)
    a = m0.as_strided((1,), (1,), 0)
    b = m1.as_strided((1,), (1,), 0)
    return (a, b)


def program(a, b):
    v1 = b.narrow(-1, 1, 0)
    return {"0": v1, "1": a * 1, "2": a, "3": a, "4": a * 1, "5": 3}


def make():
    return program
