"""One operand is the written window, another the same memory through an expanded one."""

import torch

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
    m0 = numbers(7, torch.float32, 6)
    a = m0.as_strided((7,), (1,), 0)
    return (a,)


def program(a):
    v2 = a.unbind(0)[-1]
    v4 = v2.expand(2)
    v5 = v4[-1]
    torch.sub(v5, v5, out=v2)
    return


def make():
    return program
