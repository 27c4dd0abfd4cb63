"""The second call brings an argument that begins elsewhere in its storage, where a window is placed."""

import torch

PATHS = ["vllm_ir_eager", "graph", "text", "interpreter", "vllm_ir_xla"]
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
        m1 = numbers(38, torch.float32, 7)
        b = m1.as_strided((5, 6), (1, 5), 8)
        return (b,)
    m1 = numbers(32, torch.float32, 10)
    b = m1.as_strided((5, 6), (1, 5), 2)
    return (b,)


def program(b):
    v4 = b.as_strided((3,), (1,), 22)
    v4.add_(1)
    return


def make():
    return program
