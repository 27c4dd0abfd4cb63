"""Ops under torch's tracers: one node per call, right fakes, fullgraph."""

import operator
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from vllm_ir.frontends import ops as package
from vllm_ir.frontends.ops import ops, register_op

EPSILON = 1e-5
NORM = ops.fused_add_rms_norm
DONATE = ops.fused_add_rms_norm.maybe_inplace
DONATED = DONATE.torch_op


@register_op(allow_inplace=True)
def library_aliasing(x: Tensor, others: list[Tensor], sizes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """A native definition whose results share memory with an argument and with one another."""
    total = x * sizes[0]
    for other in others:
        total = total + other
    return x.t(), total, total[:1]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def example(name: str) -> tuple[object, ...]:
    return {
        "rms_norm": (random(6, 8), random(8), EPSILON, 4),
        "fused_add_rms_norm": (random(6, 8), random(6, 8, seed=1), None, EPSILON),
        "silu_and_mul": (random(6, 8),),
        "gelu_and_mul": (random(6, 8), "tanh"),
        "dynamic_per_token_scaled_int8_quant": (random(6, 8),),
        "per_token_group_fp8_quant": (random(6, 8), 4, True),
        "static_scaled_fp8_quant": (random(6, 8), torch.ones(1)),
        "rotary_embedding": (torch.arange(6), random(6, 16), random(6, 8, seed=1), 8, random(10, 4), False),
        "library_aliasing": (random(6, 8), [random(6, 8), random(8)], [3, 4]),
    }[name]


NAMES = [
    "rms_norm",
    "fused_add_rms_norm",
    "silu_and_mul",
    "gelu_and_mul",
    "dynamic_per_token_scaled_int8_quant",
    "per_token_group_fp8_quant",
    "static_scaled_fp8_quant",
    "rotary_embedding",
    "library_aliasing",
]


def overloads(name: str) -> list[OpOverload]:
    inplace = ops[name].maybe_inplace
    return [ops[name].torch_op] if inplace is None else [ops[name].torch_op, inplace.torch_op]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("recorded", [False, True])
def test_torch_accepts_the_registration(name: str, recorded: bool) -> None:
    args = example(name)
    # opcheck adds up all results of a recorded call, which 8-bit ones do not allow; see test_gradients.py for them.
    if recorded and name != "library_aliasing" and not name.endswith("_quant"):
        args = tuple(a.requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)
    for overload in overloads(name):
        torch.library.opcheck(overload, args)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["fake", "meta"])
def test_metadata_without_data(name: str, device: str) -> None:
    mode = FakeTensorMode()
    convert: Callable[[Tensor], Tensor] = mode.from_tensor if device == "fake" else lambda t: t.to("meta")
    args = tree_map_only(Tensor, convert, example(name))
    for overload in overloads(name):
        with mode if device == "fake" else nullcontext():
            got = overload(*args)
        want = overload(*example(name))
        for g, w in zip(tree_leaves(got), tree_leaves(want), strict=True):
            assert (g.shape, g.dtype, g.stride()) == (w.shape, w.dtype, w.stride())
            assert g.storage_offset() == w.storage_offset()
        tensors = [t for t in tree_leaves((got, args)) if isinstance(t, Tensor)]
        assert len({t.untyped_storage()._cdata for t in tensors}) == len(tensors)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", NAMES)
def test_make_fx_records_one_node(name: str, mode: str) -> None:
    leaves, spec = tree_flatten(example(name))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    for overload in overloads(name):

        def call(*given: Tensor, overload: OpOverload = overload) -> object:
            rest = iter(given)
            return overload(*tree_unflatten([next(rest) if isinstance(a, Tensor) else a for a in leaves], spec))

        gm = make_fx(call, tracing_mode=mode)(*tensors)
        called = [n.target for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
        assert called == [overload]
        for got, want in zip(tree_leaves(gm(*tensors)), tree_leaves(overload(*example(name))), strict=True):
            assert torch.equal(got, want)


def test_symbolic_sizes_stay_symbolic() -> None:
    gm = make_fx(lambda x, w: ops.rms_norm(x, w, EPSILON), tracing_mode="symbolic")(random(6, 8), random(8))
    (node,) = [n for n in gm.graph.nodes if n.target is ops.rms_norm.torch_op]
    assert all(isinstance(size, torch.SymInt) for size in node.meta["val"].shape)
    assert torch.equal(gm(random(3, 8), random(8)), ops.rms_norm(random(3, 8), random(8), EPSILON))


def through_namespace(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    y = package.ops.rms_norm(x, weight, EPSILON)
    y = package.ops.rms_norm(y, None, epsilon=EPSILON, variance_size=4)
    return package.ops.fused_add_rms_norm.maybe_inplace(y, residual * 1, weight, EPSILON)


def through_globals(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    y, residual = NORM(x, residual, weight, EPSILON)
    return DONATE(y, residual, weight, EPSILON)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [through_namespace, through_globals])
def test_dynamo_without_graph_break(fn: Callable[..., tuple[Tensor, Tensor]], backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(fn, backend=backend, fullgraph=True)
    for dtype in (torch.float32, torch.bfloat16):
        args = (random(6, 8, dtype=dtype), random(6, 8, seed=1, dtype=dtype), random(8, seed=2))
        for got, want in zip(compiled(*args), fn(*args), strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_dynamo_records_the_overload_that_was_called() -> None:
    torch._dynamo.reset()
    targets: list[object] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        targets.extend(n.target for n in gm.graph.nodes if n.op == "call_function" and "vllm_ir" in str(n.target))
        return gm.forward

    torch.compile(through_globals, backend=backend, fullgraph=True)(random(6, 8), random(6, 8), random(8))
    assert targets == [NORM.torch_op, DONATED]


def test_dynamo_shows_the_ops_own_error() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: ops.rms_norm(x, None, EPSILON, 9), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match=r"vllm_ir.rms_norm: variance_size 9 is not in \[1, 8\]"):
        compiled(random(6, 8))


def test_export_keeps_the_op() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return ops.rms_norm(x, weight, EPSILON)

    program = torch.export.export(Model(), (random(6, 8), random(8))).run_decompositions()
    assert [n.target for n in program.graph.nodes if n.op == "call_function"] == [ops.rms_norm.torch_op]


def test_inference_mode() -> None:
    with torch.inference_mode():
        args = random(6, 8), random(6, 8, seed=1), random(8)
        for got, want in zip(DONATE(*args, EPSILON), NORM.native(*args, EPSILON), strict=True):
            assert torch.equal(got, want)
