"""Functional graphs through Inductor."""

import pytest
import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from vllm_ir.backends.inductor.compile import compile_functional
from vllm_ir.backends.inductor.settings import effective_patches
from vllm_ir.backends.inductor.torch_internals import patched

aten = torch.ops.aten


def compiled(function, *args: torch.Tensor, patches: dict[str, object] | None = None):
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(arg) for arg in args]
    with patched(effective_patches(patches or {})):
        with mode:
            gm = make_fx(function)(*fakes)
        (output,) = gm.graph.find_nodes(op="output")
        assert isinstance(output.args[0], tuple | list)
        return compile_functional(gm, fakes, mode)


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_results_stay_fresh_and_apart():
    def program(x: torch.Tensor, y: torch.Tensor):
        total = x + y
        return (
            aten.clone(x),
            x * torch.ones(3, 4),
            y + torch.zeros(3, 4),
            total,
            aten.clone(total),
            total - torch.zeros(3, 4),
        )

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    results = compiled(program, x, y)([x, y])
    for result, expected in zip(results, program(x, y), strict=True):
        assert torch.equal(result, expected)
    assert len({address(tensor) for tensor in (x, y, *results)}) == 8


def test_results_that_share_memory_in_the_graph_go_on_sharing_it():
    def program(x: torch.Tensor):
        total = x + 1
        return total, total.view(-1), x

    x = torch.randn(3, 4)
    total, flat, same = compiled(program, x)([x])
    assert address(total) == address(flat)
    assert address(same) == address(x)


def test_results_have_the_strides_of_the_graph():
    def program(x: torch.Tensor):
        return ((x * 2).t(), x.t() + 1)

    x = torch.randn(3, 4)
    results = compiled(program, x)([x])
    assert [result.stride() for result in results] == [result.stride() for result in program(x)]


def test_fused_operators_round_to_bfloat16_as_eager_does():
    x, divisor = torch.randn(8, 64).bfloat16(), torch.tensor(3.7).bfloat16()

    def program(x: torch.Tensor, divisor: torch.Tensor):
        scaled = x / divisor
        return scaled * 3 - scaled, (scaled == scaled.amax(-1, keepdim=True)).sum(-1)

    results = compiled(program, x, divisor)([x, divisor])
    for result, expected in zip(results, program(x, divisor), strict=True):
        assert torch.equal(result, expected)


def test_rounding_is_left_to_a_caller_who_sets_it(monkeypatch: pytest.MonkeyPatch):
    assert effective_patches({})["emulate_precision_casts"] is True
    assert effective_patches({"emulate_precision_casts": False})["emulate_precision_casts"] is False
    monkeypatch.setenv("TORCHINDUCTOR_EMULATE_PRECISION_CASTS", "0")
    assert "emulate_precision_casts" not in effective_patches({})


class Seen(CustomGraphPass):
    def __init__(self) -> None:
        self.graphs: list[fx.Graph] = []

    def __call__(self, graph: fx.Graph) -> None:
        self.graphs.append(graph)

    def uuid(self) -> object:
        return None  # keeps the graph out of the cache, or a second run would not reach the pass


def test_the_callers_own_last_pass_runs_too():
    seen = Seen()
    x = torch.randn(3)
    with config.patch(post_grad_custom_post_pass=seen):
        (result,) = compiled(lambda x: (x * torch.ones(3),), x)([x])
        assert config.post_grad_custom_post_pass is seen
    assert len(seen.graphs) == 1
    assert address(result) != address(x)


def test_sub_graphs_are_left_alone():
    def program(x: torch.Tensor):
        (result,) = torch.cond(x.sum() > 0, lambda x: (x * 2,), lambda x: (x * 1 - 1,), (x,))
        return (result, x * torch.ones(3))

    x = torch.ones(3)
    run = compiled(program, x)
    assert [result.tolist() for result in run([x])] == [[2.0] * 3, [1.0] * 3]
    assert [result.tolist() for result in run([-x])] == [[-2.0] * 3, [-1.0] * 3]


def test_element_types_that_are_only_stored():
    float8, unsigned = torch.float8_e4m3fn, torch.uint16

    def program(cache: torch.Tensor, x: torch.Tensor, words: torch.Tensor):
        typed = aten.view.dtype(cache, float8)
        new = aten.slice_scatter(typed, x.to(float8), 0, 1, 3)
        constant = torch.tensor([9, 60000], dtype=unsigned)
        return (
            aten.view.dtype(new, torch.uint8),
            aten.index_put(new, [torch.tensor([0])], aten.slice(new, 0, 1, 2)),
            new.to(torch.float32),
            aten.cat([words, constant]),
            aten.select_scatter(words, aten.select(constant, 0, 1), 0, 0),
            aten.full([2], 7, dtype=unsigned),
        )

    cache = torch.arange(32, dtype=torch.uint8).view(4, 8)
    arguments = [cache, torch.randn(2, 8), torch.tensor([1, 65535], dtype=unsigned)]
    for result, expected in zip(compiled(program, *arguments)(list(arguments)), program(*arguments), strict=True):
        assert result.dtype == expected.dtype
        assert torch.equal(result.view(torch.uint8), expected.view(torch.uint8))
