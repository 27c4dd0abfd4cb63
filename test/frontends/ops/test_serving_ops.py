"""What holds for the ops of a serving step alike: registration, generated arguments, and the way through the IR."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map_only

import vllm_ir as ir
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.attention import generate_paged_attention_inputs
from vllm_ir.frontends.ops.kv_cache import generate_reshape_and_cache_inputs
from vllm_ir.frontends.ops.moe import generate_fused_moe_inputs

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
GENERATORS: dict[str, Callable[..., tuple[object, ...]]] = {
    "reshape_and_cache": generate_reshape_and_cache_inputs,
    "paged_attention": generate_paged_attention_inputs,
    "fused_moe": generate_fused_moe_inputs,
}
CASES = [
    ("reshape_and_cache", lambda: generate_reshape_and_cache_inputs(dtype=torch.float32)),
    ("paged_attention", lambda: generate_paged_attention_inputs(dtype=torch.float32)),
    ("paged_attention", lambda: (*generate_paged_attention_inputs(9, dtype=torch.float32), 5, 3.0)),
    ("fused_moe", lambda: generate_fused_moe_inputs(dtype=torch.float32)),
]


def identified(part: object) -> str:
    return part if type(part) is str else ""


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("tokens", [0, 1, 3, 33])
@pytest.mark.parametrize("name", GENERATORS)
def test_generated_arguments_are_valid_and_follow_the_seed(name: str, tokens: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    first = GENERATORS[name](tokens, dtype=dtype)
    torch.manual_seed(1)
    second = GENERATORS[name](tokens, dtype=dtype)
    for left, right in zip(first, second, strict=True):
        assert torch.equal(left, right) if isinstance(left, Tensor) else left == right
    for result in tree_leaves(ops[name](*first)):
        assert result.dtype is dtype
        assert bool(result.isfinite().all())


@pytest.mark.parametrize(("name", "make"), CASES, ids=identified)
def test_torch_accepts_the_registration(name: str, make: Callable[[], tuple[object, ...]]) -> None:
    inplace = ops[name].maybe_inplace
    for overload in [ops[name].torch_op] if inplace is None else [ops[name].torch_op, inplace.torch_op]:
        torch.library.opcheck(overload, make())


@pytest.mark.parametrize("device", ["fake", "meta"])
@pytest.mark.parametrize(("name", "make"), CASES, ids=identified)
def test_metadata_without_data(name: str, make: Callable[[], tuple[object, ...]], device: str) -> None:
    mode, args = FakeTensorMode(), make()
    convert: Callable[[Tensor], Tensor] = mode.from_tensor if device == "fake" else lambda t: t.to("meta")
    with mode if device == "fake" else nullcontext():
        got = ops[name](*tree_map_only(Tensor, convert, args))
    for left, right in zip(tree_leaves(got), tree_leaves(ops[name](*args)), strict=True):
        assert (left.shape, left.dtype, left.stride()) == (right.shape, right.dtype, right.stride())


@pytest.mark.parametrize(("name", "make"), CASES, ids=identified)
def test_through_the_passes_and_the_text(name: str, make: Callable[[], tuple[object, ...]]) -> None:
    args = make()
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    others = [arg for arg in args if not isinstance(arg, Tensor)]
    module = ir.import_callable(lambda *given: ops[name](*given, *others), *tensors)
    assert f"vllm_ir.{name}" in str(module)
    module = ir.parse(str(module))
    for passes in ("functionalize", "lower"):
        ir.run_passes(module, passes)
        module.verify()
        module = ir.parse(str(module))
    assert f'"vllm_ir.{name}"' not in str(module)
    for got, want in zip(tree_leaves(ir.export_fx(module)(*tensors)), tree_leaves(ops[name](*args)), strict=True):
        assert torch.equal(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("call", ["op", "native"])
@pytest.mark.parametrize("name", GENERATORS)
def test_one_trace_for_any_number_of_tokens(name: str, call: str) -> None:
    run = ops[name] if call == "op" else ops[name].native
    traced = make_fx(lambda *args: run(*args), tracing_mode="symbolic")(*GENERATORS[name](7, dtype=torch.float32))
    for node in traced.graph.nodes:
        if node.op == "output":
            sizes = [value.meta["val"].shape[0] for value in tree_leaves(node.args)]
            assert all(isinstance(size, torch.SymInt) for size in sizes)
    for tokens in (7, 9, 50):
        args = GENERATORS[name](tokens, dtype=torch.float32)
        assert all(map(torch.equal, tree_leaves(traced(*args)), tree_leaves(ops[name](*args))))


@pytest.mark.parametrize(("name", "make"), CASES, ids=identified)
def test_gradients(name: str, make: Callable[[], tuple[object, ...]]) -> None:
    args = [arg.requires_grad_() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in make()]
    inputs = [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
    got, want = (
        torch.autograd.grad([result.sin().sum() for result in tree_leaves(run(*args))], inputs)
        for run in (ops[name], ops[name].native)
    )
    assert all(map(torch.equal, got, want))
    assert all(bool(gradient.isfinite().all()) for gradient in got)
