"""The kernels as torch operators: memory, threads, gradients, schemas and fake kernels."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

EPSILON = 1e-5


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, HALF_X, TABLE = random(4, 8), random(4, 8, dtype=torch.bfloat16), random(10, 8)
KEY_AND_VALUE, CACHES = (random(2, 2, 8), random(2, 2, 8)), (random(3, 4, 2, 8), random(3, 4, 2, 8, seed=1))
PLACES = torch.tensor([[2]]), torch.tensor([3]), torch.arange(2)


def columns(x: Tensor) -> Tensor:
    return F.pad(x, (3, 5))[..., 3:-5]


def test_donated_activations_are_overwritten_and_returned():
    x, residual, weight = integers(4, 8), integers(4, 8, seed=1), integers(8, seed=2)
    want = ops.fused_add_rms_norm.native(x, residual, weight, EPSILON)
    with ops.fused_add_rms_norm.set_priority([PROVIDER]):
        got = ops.fused_add_rms_norm.maybe_inplace(x, residual, weight, EPSILON)
    assert (got[0].data_ptr(), got[1].data_ptr()) == (x.data_ptr(), residual.data_ptr())
    assert all(map(torch.equal, (x, residual), want))


def test_pieces_of_a_projection_are_rotated_where_they_lie():
    projection = random(5, 16 + 8 + 8)
    before = projection.clone()
    query, key, _ = projection.split([16, 8, 8], -1)
    want = ops.rotary_embedding.native(torch.arange(5), query, key, 8, TABLE, True)
    with ops.rotary_embedding.set_priority([PROVIDER]):
        got = ops.rotary_embedding.maybe_inplace(torch.arange(5), query, key, 8, TABLE, True)
    assert got[0].data_ptr() == query.data_ptr()
    assert torch.equal(projection, torch.cat((*want, before[:, 24:]), -1))


def test_an_activation_given_twice():
    x = integers(4, 8)
    want = ops.fused_add_rms_norm.native(x, x, None, EPSILON)
    with ops.fused_add_rms_norm.set_priority([PROVIDER]):
        got = ops.fused_add_rms_norm.maybe_inplace(x, x, None, EPSILON)
    assert all(map(torch.equal, got, want))


def test_the_number_of_threads_does_not_matter():
    x, residual, weight = random(300, 700), random(300, 700, seed=1), random(700, seed=2)
    fn = ops.fused_add_rms_norm.impls[PROVIDER].impl_fn
    threads = torch.get_num_threads()
    results: list[tuple[Tensor, ...]] = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(fn(x.clone(), residual.clone(), weight, EPSILON))
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, *results))


def test_gradients_are_the_native_ones():
    x, weight = random(3, 8).requires_grad_(), random(8).requires_grad_()
    with ops.rms_norm.set_priority([PROVIDER]):
        ops.rms_norm(x, weight, EPSILON).sum().backward()
    got = (x.grad, weight.grad)
    x.grad = weight.grad = None
    ops.rms_norm(x, weight, EPSILON).sum().backward()
    assert all(map(torch.equal, got, (x.grad, weight.grad)))


OPERATOR_ARGUMENTS: list[tuple[str, tuple[object, ...]]] = [
    ("rms_norm", (HALF_X, random(8), EPSILON)),
    ("rms_norm", (random(2, 3, 8).transpose(0, 1), None, EPSILON, 5)),
    ("rms_norm", (columns(random(2, 3, 8)), None, EPSILON)),
    ("fused_add_rms_norm_", (X.clone(), random(4, 8), random(8), EPSILON)),
    ("silu_and_mul", (columns(random(2, 3, 8)).transpose(0, 1),)),
    ("gelu_and_mul", (columns(random(2, 3, 8)).transpose(0, 1), "tanh")),
    ("rotary_embedding_", (torch.arange(4), X.clone(), random(4, 16), 8, TABLE, False)),
    ("static_scaled_int8_quant", (columns(random(2, 3, 8)).transpose(0, 1), torch.tensor([0.01]))),
    ("dynamic_per_token_scaled_int8_quant", (random(2, 3, 8).transpose(0, 1),)),
    ("per_token_group_int8_quant", (columns(HALF_X), 4)),
    ("static_scaled_fp8_quant", (columns(random(2, 3, 8)).transpose(0, 1), torch.tensor([0.01]))),
    ("dynamic_per_token_scaled_fp8_quant", (random(2, 3, 8).transpose(0, 1), torch.tensor([1.5]))),
    ("per_token_group_fp8_quant", (columns(HALF_X), 4, True)),
    ("reshape_and_cache_", (*KEY_AND_VALUE, *CACHES, torch.tensor([3, -1]))),
    ("reshape_and_cache_", (*KEY_AND_VALUE, *torch.stack(CACHES, 1).unbind(1), torch.tensor([0, 5]))),
    (
        "paged_attention",
        (random(2, 4, 8), *CACHES, torch.tensor([[0, 1]]), torch.tensor([6]), torch.arange(0, 4, 2), 0.3),
    ),
    ("paged_attention", (random(1, 2, 8).mT.contiguous().mT, *CACHES, *PLACES, 0.3, 3, 5.0)),
    ("fused_moe", (X, random(3, 12, 8), random(3, 8, 6), random(4, 2), torch.tensor([[0, 2]] * 4))),
    ("fused_moe", (random(8, 4).t(), random(3, 12, 8), random(3, 8, 6), random(4, 2), torch.tensor([[0, 3]] * 4))),
]


@pytest.mark.parametrize(("name", "args"), OPERATOR_ARGUMENTS, ids=lambda part: part if type(part) is str else "")
def test_schemas_and_fake_kernels_tell_the_truth(name: str, args: tuple[object, ...]):
    operator = getattr(torch.ops.vllm_ir_cpu, name).default
    torch.library.opcheck(operator, args)


def test_only_what_a_kernel_writes_is_mutable():
    def written(name: str) -> list[str]:
        schema = getattr(torch.ops.vllm_ir_cpu, name).default._schema
        return [arg.name for arg in schema.arguments if arg.alias_info is not None and arg.alias_info.is_write]

    for name in ("rms_norm", "silu_and_mul", "paged_attention", "fused_moe"):
        assert written(name) == []
    assert written("fused_add_rms_norm_") == ["x", "residual"]
    assert written("rotary_embedding_") == ["query", "key"]
    assert written("reshape_and_cache_") == ["key_cache", "value_cache"]
    assert written("all_reduce_") == ["x"]
