"""The ops of a serving step with provider `cpu`, compiled and through the passes; and a decoding step of two layers."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map_only

import vllm_ir as ir
from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.attention import generate_paged_attention_inputs
from vllm_ir.frontends.ops.kv_cache import generate_reshape_and_cache_inputs
from vllm_ir.frontends.ops.moe import generate_fused_moe_inputs

GENERATORS: dict[str, Callable[..., tuple[object, ...]]] = {
    "reshape_and_cache": generate_reshape_and_cache_inputs,
    "paged_attention": generate_paged_attention_inputs,
    "fused_moe": generate_fused_moe_inputs,
}
PRIORITY = {name: [PROVIDER] for name in GENERATORS}


def call(name: str) -> Callable[..., object]:
    return {
        "reshape_and_cache": lambda *args: ir.ops.reshape_and_cache(*args),
        "paged_attention": lambda *args: ir.ops.paged_attention(*args),
        "fused_moe": lambda *args: ir.ops.fused_moe(*args),
    }[name]


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
@pytest.mark.parametrize("name", GENERATORS)
def test_compiled_programs_use_the_kernels(name: str, backend: str):
    ir.clear_compile_reports()
    compiled = torch.compile(call(name), backend=backend, fullgraph=True, options={"ir_op_priority": PRIORITY})
    args = GENERATORS[name](9)
    before = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
    got = compiled(*args)
    with ops[name].set_priority([PROVIDER]):
        want = ops[name](*args)
    for left, right in zip(tree_leaves(got), tree_leaves(want), strict=True):
        assert torch.equal(left, right)
        assert left.stride() == right.stride()
    assert all(torch.equal(a, b) for a, b in zip(args, before, strict=True) if isinstance(a, Tensor))
    (report,) = ir.compile_reports()
    assert {provider for nodes in report.selected_impls.values() for provider in nodes.values()} == {PROVIDER}
    assert report.rejected_impls == {}


@pytest.mark.parametrize("name", GENERATORS)
def test_lowered_to_the_operator(name: str):
    args = GENERATORS[name](9)
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    others = [arg for arg in args if not isinstance(arg, Tensor)]
    module = ir.parse(str(ir.import_callable(lambda *given: ops[name](*given, *others), *tensors)))
    ir.run_passes(module, "functionalize")
    with ops[name].set_priority([PROVIDER]):
        ir.run_passes(module, "lower")
        want = ops[name](*args)
    assert re.search(rf"torch.call @vllm_ir_cpu.{name}_?.default", str(module))
    for left, right in zip(tree_leaves(ir.export_fx(module)(*tensors)), tree_leaves(want), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_dynamic_number_of_tokens_is_one_graph(name: str):
    ir.clear_compile_reports()
    compiled = torch.compile(
        call(name), backend="vllm_ir_eager", fullgraph=True, dynamic=True, options={"ir_op_priority": PRIORITY}
    )
    for tokens in (6, 9, 33):
        args = GENERATORS[name](tokens, dtype=torch.float32)
        with ops[name].set_priority([PROVIDER]):
            want = ops[name](*args)
        assert all(map(torch.equal, tree_leaves(compiled(*args)), tree_leaves(want)))
    (report,) = ir.compile_reports()
    assert {provider for nodes in report.selected_impls.values() for provider in nodes.values()} == {PROVIDER}


@pytest.mark.parametrize("name", GENERATORS)
def test_choosing_on_symbolic_sizes_ties_nothing_down(name: str):
    shapes, real = ShapeEnv(), GENERATORS[name](7)
    with FakeTensorMode(shape_env=shapes, static_shapes=False) as mode:
        args = tree_map_only(Tensor, mode.from_tensor, real)
        assert any(isinstance(size, torch.SymInt) for arg in args if isinstance(arg, Tensor) for size in arg.shape)
        guards = len(shapes.guards)
        ops[name].select(args, [PROVIDER])
    assert len(shapes.guards) == guards


LAYERS, BLOCKS, BLOCK, HEADS, KV_HEADS, SIZE = 2, 8, 4, 4, 2, 16
CACHES = {
    # name: (shape of the cache, the dimension of keys and values in a layer)
    "keys before values": ((LAYERS, 2, BLOCKS, BLOCK, KV_HEADS, SIZE), 0),
    "block by block": ((LAYERS, BLOCKS, 2, BLOCK, KV_HEADS, SIZE), 1),
}


def decode(dim: int) -> Callable[..., Tensor]:
    """A step of two layers, which share one cache; copies back what `reshape_and_cache` gives."""

    def step(query: Tensor, keys: Tensor, values: Tensor, cache: Tensor, slots: Tensor, *places: Tensor) -> Tensor:
        for layer in range(LAYERS):
            key_cache, value_cache = cache[layer].unbind(dim)
            new = ir.ops.reshape_and_cache(keys[layer], values[layer], key_cache, value_cache, slots)
            key_cache.copy_(new[0])
            value_cache.copy_(new[1])
            query = query + ir.ops.paged_attention(query, key_cache, value_cache, *places, SIZE**-0.5)
        return query

    return step


def step_arguments(cache: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, HEADS, SIZE), (LAYERS, 3, KV_HEADS, SIZE), (LAYERS, 3, KV_HEADS, SIZE), cache)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    # Two sequences, in their second block; and a token of none, without a slot.
    slots = torch.tensor([1 * BLOCK + 2, 5 * BLOCK, -1])
    return [*tensors, slots, torch.tensor([[0, 1], [4, 5]]), torch.tensor([BLOCK + 3, BLOCK + 1]), torch.arange(3)]


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
@pytest.mark.parametrize("layout", CACHES)
def test_a_decoding_step_writes_the_cache_of_its_caller(layout: str, backend: str):
    shape, dim = CACHES[layout]
    ir.clear_compile_reports()
    options = {"ir_op_priority": PRIORITY}
    compiled = torch.compile(decode(dim), backend=backend, fullgraph=True, options=options)
    args, eager_args = step_arguments(shape), step_arguments(shape)
    address = args[3].data_ptr()
    with torch.no_grad(), ir.KernelConfig(ir_op_priority=PRIORITY).apply():
        got, want = compiled(*args), decode(dim)(*eager_args)
    assert torch.equal(got, want)
    assert torch.equal(args[3], eager_args[3])
    assert not torch.equal(args[3], step_arguments(shape)[3])
    assert args[3].data_ptr() == address
    (report,) = ir.compile_reports()
    assert report.selected_impls.keys() == {"reshape_and_cache", "paged_attention"}
    if layout == "keys before values":
        assert report.copies == []


def test_with_native_definitions_the_step_copies_no_cache():
    shape, dim = CACHES["keys before values"]
    ir.clear_compile_reports()
    compiled = torch.compile(decode(dim), backend="vllm_ir_eager", fullgraph=True)
    args, eager_args = step_arguments(shape), step_arguments(shape)
    with torch.no_grad():
        assert torch.equal(compiled(*args), decode(dim)(*eager_args))
    assert torch.equal(args[3], eager_args[3])
    (report,) = ir.compile_reports()
    # The contiguous results of attention, one in each layer.
    assert [what for what, _, _ in report.copies] == ["aten.clone.default"] * LAYERS


def test_a_cache_that_was_given_away_is_not_the_callers_to_write():
    def step(key: Tensor, value: Tensor, cache: Tensor, slots: Tensor) -> None:
        new = ir.ops.reshape_and_cache.maybe_inplace(key, value, cache[0], cache[1], slots)
        cache[0].copy_(new[0])

    _, keys, values, cache, slots, *_ = step_arguments(CACHES["keys before values"][0])
    compiled = torch.compile(step, backend="vllm_ir_eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="after its memory was donated"):
        compiled(keys[0], values[0], cache[0], slots)
