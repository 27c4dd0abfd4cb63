"""The strides of a transposed result are products of the size of a last chunk."""

import torch

import vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)

PATHS = ["vllm_ir_eager", "vllm_ir"]
CALLS = 1
DYNAMIC = True
PROVIDERS = {"fuzz_add_two": ["writes"]}
UNDEFINED = {}


def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def inputs(call):
    m0 = numbers(61, torch.float64, 12)
    a = m0.as_strided((5, 2, 2, 3), (12, 6, 3, 1), 0)
    return (a,)


def program(a):
    v6 = a.mul_(a)
    v11 = v6.chunk(3, 3)[-1]
    v12, _ = torch.ops.vllm_ir.fuzz_add_two.maybe_inplace(v11.clone(), v11.clone(), v11)
    v21 = v12.swapaxes(1, 3)
    return (v21.view_as(v21),)


def make():
    return program
