"""The provider `cpu` through `torch.compile` and the passes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import vllm_ir as ir
from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

NAMES = ("rms_norm", "fused_add_rms_norm", "silu_and_mul", "rotary_embedding")
PRIORITY = {name: [PROVIDER] for name in NAMES}


def layer(x: Tensor, residual: Tensor, weight: Tensor, qkv: Tensor, positions: Tensor, table: Tensor):
    """Every op; activations that die, some that are read again, and pieces of a projection."""
    normed, added = ir.ops.fused_add_rms_norm.maybe_inplace(x * 2.0, residual, weight, 1e-5)
    gated = ir.ops.silu_and_mul(normed)
    query, key, value = qkv.split([32, 16, 16], -1)
    turned_query, turned_key = ir.ops.rotary_embedding(positions, query, key, 16, table, True)
    scores = turned_query.view(-1, 2, 16) * turned_key.unsqueeze(1)
    return ir.ops.rms_norm(gated, None, 1e-5, 8), added, scores, query + 1, ir.ops.rms_norm(added, weight, 1e-5), value


def arguments(tokens: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    shapes = ((tokens, 64), (tokens, 64), (64,), (tokens, 64))
    tensors = [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]
    return [*tensors, torch.arange(tokens), torch.randn(40, 16, generator=generator)]


def eager(args: list[Tensor]) -> tuple[Tensor, ...]:
    """The layer with the same kernels, on copies of its arguments."""
    with ir.KernelConfig(ir_op_priority=PRIORITY).apply():
        return layer(*(arg.clone() for arg in args))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
def test_compiled_programs_use_the_kernels(backend: str, dtype: torch.dtype):
    ir.clear_compile_reports()
    compiled = torch.compile(layer, backend=backend, fullgraph=True, options={"ir_op_priority": PRIORITY})
    args = arguments(6, dtype)
    before = [arg.clone() for arg in args]
    with torch.no_grad():
        got = compiled(*args)
    assert all(map(torch.equal, got, eager(before)))
    # The residual was donated.
    assert all(torch.equal(a, b) for i, (a, b) in enumerate(zip(args, before, strict=True)) if i != 1)
    (report,) = ir.compile_reports()
    assert {provider for nodes in report.selected_impls.values() for provider in nodes.values()} == {"cpu"}
    assert set(report.selected_impls) == set(NAMES)
    assert report.rejected_impls == {}


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
def test_a_dynamic_number_of_tokens_is_one_graph(backend: str):
    ir.clear_compile_reports()
    compiled = torch.compile(layer, backend=backend, fullgraph=True, options={"ir_op_priority": PRIORITY})
    for tokens in (6, 9, 33):
        args = arguments(tokens, torch.float32)
        for arg in (args[0], args[1], args[3], args[4]):
            torch._dynamo.mark_dynamic(arg, 0)
        with torch.no_grad():
            got = compiled(*[arg.clone() for arg in args] if tokens != 6 else args)
        assert all(map(torch.equal, got, eager(arguments(tokens, torch.float32))))
    (report,) = ir.compile_reports()
    assert {provider for nodes in report.selected_impls.values() for provider in nodes.values()} == {"cpu"}


def test_pieces_that_are_rotated_and_returned():
    def rotate(qkv: Tensor, positions: Tensor, table: Tensor):
        query, key = qkv.split([32, 16], -1)
        return ir.ops.rotary_embedding(positions, query, key, 16, table, True)

    options = {"ir_op_priority": PRIORITY}
    args = (torch.randn(5, 48), torch.arange(5), torch.randn(40, 16))
    got = torch.compile(rotate, backend="vllm_ir_eager", fullgraph=True, options=options)(*args)
    want = rotate(*args)
    assert all(map(torch.equal, got, want))
    assert [result.stride() for result in got] == [result.stride() for result in want]


def test_rejections_are_reported():
    ir.clear_compile_reports()
    options = {"ir_op_priority": {"rms_norm": ["cpu", "native"]}}
    compiled = torch.compile(lambda x: ir.ops.rms_norm(x, None, 1e-5), backend="vllm_ir_eager", options=options)
    x = torch.randn(3, 8).double()
    assert torch.equal(compiled(x), ops.rms_norm.native(x, None, 1e-5))
    (report,) = ir.compile_reports()
    (node,) = report.selected_impls["rms_norm"]
    assert report.selected_impls["rms_norm"][node] == "native"
    assert report.rejected_impls["rms_norm"][node] == [("cpu", "supports_args refused the arguments")]


def test_the_default_priority_stays_native():
    assert all(ops[name].get_priority() == ["native"] for name in NAMES)


SYMBOLIC: list[tuple[str, Callable[[Tensor], Tensor], bool]] = [
    ("contiguous", lambda x: x, True),
    ("columns", lambda x: x[..., 2:10], True),
    ("transposed", lambda x: x.mT, False),
    ("swapped", lambda x: x.transpose(0, 1), False),
]


@pytest.mark.parametrize(("name", "change", "taken"), SYMBOLIC, ids=lambda part: part if type(part) is str else "")
def test_choosing_on_symbolic_sizes_ties_nothing_down(name: str, change: Callable[[Tensor], Tensor], taken: bool):
    shapes, real = ShapeEnv(), torch.empty(3, 5, 16)
    with FakeTensorMode(shape_env=shapes, static_shapes=False) as mode:
        x = change(mode.from_tensor(real))
        assert all(isinstance(size, torch.SymInt) for size in x.shape[:-1])
        guards = len(shapes.guards)
        assert (ops.rms_norm.select([x, None, 1e-5], ["cpu"])[0].provider == "cpu") == taken
    assert len(shapes.guards) == guards
