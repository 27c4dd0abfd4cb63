"""What a graph is given before Inductor sees it."""

import pytest
import torch
from torch import fx
from torch._inductor import config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from vllm_ir.backends.inductor.prepare import prepare_for_inductor
from vllm_ir.backends.inductor.torch_internals import decompositions

aten = torch.ops.aten


@torch.library.custom_op("inductor_prepare::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


@rows.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0])


def traced(function, *args: torch.Tensor) -> tuple[fx.GraphModule, FakeTensorMode]:
    mode = FakeTensorMode()
    with mode:
        return make_fx(function)(*(mode.from_tensor(arg) for arg in args)), mode


def targets(gm: fx.GraphModule) -> list[object]:
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


def test_operators_of_the_table_are_decomposed_in_place_of_the_node():
    x = torch.randn(3, 4)
    gm, mode = traced(lambda x: aten.silu(x + 1) * 2, x)
    assert aten.silu.default in targets(gm)
    prepare_for_inductor(gm, decompositions(), mode)
    assert aten.silu.default not in targets(gm)
    assert all("val" in node.meta for node in gm.graph.nodes if node.op == "call_function")
    torch.testing.assert_close(gm(x), torch.nn.functional.silu(x + 1) * 2)


def test_several_results_are_decomposed_one_by_one():
    x = torch.randn(3, 4)

    def program(x: torch.Tensor) -> torch.Tensor:
        normed, mean, _ = aten.native_layer_norm(x, [4], None, None, 1e-5)
        return normed + mean

    gm, mode = traced(program, x)
    prepare_for_inductor(gm, decompositions(), mode)
    assert aten.native_layer_norm.default not in targets(gm)
    torch.testing.assert_close(gm(x), program(x))


def test_a_constant_of_a_decomposition_gets_a_name_of_its_own():
    table = {aten.relu.default: lambda x: x + torch.tensor([1.0, 2.0])}
    gm, mode = traced(lambda x: aten.relu(x) + torch.tensor([5.0, 5.0]), torch.zeros(2))
    prepare_for_inductor(gm, table, mode)
    assert gm(torch.zeros(2)).tolist() == [6.0, 7.0]


def test_custom_operators_record_the_strides_of_their_operands():
    gm, mode = traced(lambda x: rows(x.t()), torch.randn(3, 4))
    for node in gm.graph.nodes:
        node.meta.pop("eager_input_vals", None)
    prepare_for_inductor(gm, {}, mode)
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.inductor_prepare.rows.default)
    ((operand,), _) = node.meta["eager_input_vals"]
    assert operand.stride() == (1, 4)


@pytest.mark.parametrize("rounds", [True, False])
def test_only_low_precision_operators_are_marked_for_rounding(rounds: bool):
    gm, mode = traced(lambda x: (x.to(torch.bfloat16) * 2).to(torch.float32) + 1, torch.randn(3))
    with config.patch(emulate_precision_casts=rounds):
        prepare_for_inductor(gm, {}, mode)
    marked = {node.target: node.meta.get("low_precision_pointwise_barrier") for node in gm.graph.nodes}
    assert marked[aten.mul.Tensor] is (True if rounds else None)
    assert marked[aten.add.Tensor] is None


def test_arguments_with_their_defaults_are_left_out_and_others_stay():
    graph = fx.Graph()
    x = graph.placeholder("x")
    expanded = graph.call_function(aten.expand.default, (x, [3, 4]), {"implicit": False})
    added = graph.call_function(aten.add.Tensor, (expanded, x), {"alpha": True})
    graph.output((graph.call_function(aten.sum.dim_IntList, (added, [1], False), {"dtype": None}),))
    gm = fx.GraphModule({}, graph)
    prepare_for_inductor(gm, {}, FakeTensorMode())
    calls = {node.target: (node.args[1:], node.kwargs) for node in gm.graph.nodes if node.op == "call_function"}
    assert calls[aten.expand.default] == (([3, 4],), {})
    assert calls[aten.add.Tensor] == ((x,), {"alpha": True})
    assert calls[aten.sum.dim_IntList] == (([1],), {})
