"""A result whose layout differs from that of its implementation is written, in one of two results."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "graph", "text", "interpreter", "vllm_ir_xla"]
CALLS = 1
DYNAMIC = False
PROVIDERS = {"fuzz_add": ["spoils"], "fuzz_add_two": ["writes"]}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(11, torch.float32, 3)
    b = m0.as_strided((6, 1), (1, 6), 0)
    return (b,)


def program(b):
    v3 = b.to(torch.bfloat16)
    v4 = v3.index_put((torch.tensor([0]),), v3[:1])
    v6, v8 = torch.ops.vllm_ir.fuzz_add_two.maybe_inplace(v4, v3 * 2, v3)
    torch.ops.vllm_ir.fuzz_add.maybe_inplace(v6 + 1, v6)
    v8[..., 0] += 5
    return


def make():
    return program
