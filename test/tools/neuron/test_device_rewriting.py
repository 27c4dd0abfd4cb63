"""Every device in a graph becomes the target, and nothing that only looks like one."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

import vllm_ir as ir

aten = torch.ops.aten
HERE = torch.device("cuda", 1)


def calls(build: Callable[[fx.Graph, fx.Node], object]) -> fx.GraphModule:
    """A graph with what `build` adds behind one input, and returns."""
    graph = fx.Graph()
    graph.output(build(graph, graph.placeholder("x")))
    return fx.GraphModule(torch.nn.Module(), graph)


def method(name: str, *args: object, **kwargs: object) -> fx.GraphModule:
    return calls(lambda graph, x: graph.call_method(name, (x, *args), kwargs))


def function(target: Callable[..., object], *args: object, **kwargs: object) -> fx.GraphModule:
    return calls(lambda graph, x: graph.call_function(target, tuple(x if a is Tensor else a for a in args), kwargs))


def rewritten(gm: fx.GraphModule, target: str = "xla") -> tuple[fx.Node, int]:
    before = str(gm.graph)
    result, metadata = ir.neuron.rewrite_devices(gm, target)
    assert str(gm.graph) == before  # the user's graph stays as it is
    result.graph.lint()
    (node,) = [node for node in result.graph.nodes if node.op.startswith("call")]
    return node, metadata["rewrite_count"]


XLA = torch.device("xla")


@pytest.mark.parametrize(
    ("gm", "args", "kwargs"),
    [
        (method("to", "cuda"), ("xla",), {}),
        (method("to", "cuda:1", torch.float16, True), ("xla", torch.float16, True), {}),
        (method("to", HERE), (XLA,), {}),
        (method("to", HERE, copy=True), (XLA,), {"copy": True}),
        (method("to", device="cpu", dtype=torch.int8), (), {"device": "xla", "dtype": torch.int8}),
        (method("to", 0), ("xla",), {}),
        (method("new_zeros", (2, 3), device="cuda"), ((2, 3),), {"device": "xla"}),
        (method("cuda"), ("xla",), {}),
        (method("cuda", 1, True), ("xla",), {"non_blocking": True}),
        (method("cpu"), ("xla",), {}),
        (function(torch.zeros, 2, 3, device="cuda"), (2, 3), {"device": "xla"}),
        (function(torch.zeros, 2, device=HERE), (2,), {"device": XLA}),
        (function(torch.tensor, 2.5, device="cuda"), (2.5,), {"device": "xla"}),
        (function(torch.arange, 0, 8, 2, device="cuda"), (0, 8, 2), {"device": "xla"}),
        (function(torch.full_like, Tensor, 2, device=HERE), (2,), {"device": XLA}),
        (function(torch.Tensor.to, Tensor, "cuda"), ("xla",), {}),
        (function(torch.Tensor.cuda, Tensor), ("xla",), {}),
        (function(aten.to.device, Tensor, HERE, torch.float32), (XLA, torch.float32), {}),
        (function(aten.to, Tensor, "cuda", torch.float32), ("xla", torch.float32), {}),
        (function(aten._to_copy.default, Tensor, device=HERE), (), {"device": XLA}),
        (function(aten.empty.memory_format, [2], device="cuda", pin_memory=False), ([2],), {"device": "xla"}),
        (function(torch.ops.prims.device_put.default, Tensor, HERE), (XLA,), {}),
    ],
)
def test_devices(gm: fx.GraphModule, args: tuple[object, ...], kwargs: dict[str, object]):
    node, count = rewritten(gm)
    assert count == 1
    given = tuple(a for a in node.args if not isinstance(a, fx.Node))
    assert given == args
    assert [isinstance(value, torch.device) for value in given] == [isinstance(value, torch.device) for value in args]
    assert {name: node.kwargs[name] for name in kwargs} == kwargs


@pytest.mark.parametrize(
    "gm",
    [
        method("to", torch.float16),
        method("to", "xla"),
        method("to", dtype=torch.float16),
        method("norm", "fro"),
        method("eq", 1),
        method("view", 2, 3),
        method("div", 2, rounding_mode="floor"),
        function(torch.einsum, "cuda,cuda", Tensor, Tensor),
        function(aten.div.Tensor_mode, Tensor, Tensor, rounding_mode="floor"),
        function(torch.zeros, 2, device="xla"),
        function(operator.getitem, Tensor, 0),
        function(torch.full, (2,), 3),
        function(getattr, Tensor, "device"),
    ],
)
def test_what_is_no_other_device_stays(gm: fx.GraphModule):
    before = [(node.args, node.kwargs) for node in gm.graph.nodes if node.op.startswith("call")]
    node, count = rewritten(gm)
    assert count == 0
    assert [(str(node.args), node.kwargs)] == [(str(args), kwargs) for args, kwargs in before]


def test_strings_of_custom_operators_are_devices_only_by_schema():
    library = torch.library.Library("neuron_devices", "DEF")
    library.define("place(Tensor x, str device, Device where, Device? other=None) -> Tensor")
    node, count = rewritten(function(torch.ops.neuron_devices.place.default, Tensor, "cuda", "cuda", other=HERE))
    assert count == 2
    assert (node.args[1:], node.kwargs) == (("cuda", "xla"), {"other": XLA})
    library._destroy()


def test_a_method_and_a_function_of_the_user_with_names_like_pytorchs():
    def zeros(x: Tensor, device: str) -> Tensor:
        return x

    node, count = rewritten(function(zeros, Tensor, device="cuda"))
    assert (count, node.kwargs) == (0, {"device": "cuda"})


def test_graphs_from_dynamo_and_their_sub_graphs():
    def program(x: Tensor) -> Tensor:
        y = torch.cond(
            x.shape[0] > 1 and x.sum() > 0,
            lambda x: x + torch.ones(3, device="cpu"),
            lambda x: x.to(torch.device("cpu")) * 2,
            (x,),
        )
        return y.to("cpu") + torch.zeros(3, device=x.device)

    graphs: list[fx.GraphModule] = []
    torch.compile(program, backend=lambda gm, inputs: graphs.append(gm) or gm, fullgraph=True)(torch.ones(2, 3))
    result, metadata = ir.neuron.rewrite_devices(graphs[0], "meta")
    assert metadata["rewrite_count"] == 4
    devices = {
        str(value)
        for module in result.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.nodes
        for value in (*node.args, *node.kwargs.values())
        if isinstance(value, torch.device) or value in ("cpu", "meta")
    }
    assert devices == {"meta"}
    assert "cpu" in graphs[0].code


def test_the_result_runs_on_the_target():
    gm = method("to", torch.device("meta"))
    result, _ = ir.neuron.rewrite_devices(gm, "cpu")
    assert result(torch.ones(2)).device.type == "cpu"


def test_a_device_that_does_not_exist():
    with pytest.raises(RuntimeError, match="nowhere"):
        ir.neuron.rewrite_devices(method("to", "cuda"), "nowhere")
