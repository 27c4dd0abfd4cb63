"""Neuron's stage as a whole, and each of its passes alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

import vllm_ir as ir

Captured = tuple[fx.GraphModule, list[Tensor]]


def _store(cache: Tensor, factor: float, rows: Tensor) -> Tensor:
    cache[: rows.shape[0]] = rows * factor
    return cache


store = ir.device_kernel("fx_store", {0: 0}, _store, {"has_collectives": True, "artifact": "store.bin"})


def captured(program: Callable[..., object], *inputs: object) -> Captured:
    graphs: list[Captured] = []
    torch.compile(program, backend=lambda gm, given: graphs.append((gm, given)) or gm.forward, fullgraph=True)(*inputs)
    return graphs[0]


def decoder(kv: Tensor, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    kv[0, 1].copy_(x[0])
    y = x.to("cpu") + torch.ones(4, device="cpu")
    store[2](kv[1], 0.5, y)
    return kv[1, :2].sum(0), state.add_(1)


def inputs() -> list[Tensor]:
    return [torch.arange(48.0).reshape(2, 6, 4), torch.ones(2, 4), torch.zeros(3)]


@pytest.fixture
def graph() -> fx.GraphModule:
    return captured(decoder, *inputs())[0]


@pytest.mark.parametrize("target", ["cpu", "xla", None])
def test_all_passes(graph: fx.GraphModule, target: str | None):
    before = str(graph.graph)
    functional, metadata = ir.neuron.run_fx_passes(graph, inputs(), target_device=target)
    assert str(graph.graph) == before
    assert list(metadata) == [
        "device-rewriting",
        "kernel-backend-config",
        "aliasing",
        "in-place-to-out-of-place",
        "replica-groups",
    ]
    assert metadata["device-rewriting"] == {"rewrite_count": 2 * (target == "xla")}
    assert metadata["kernel-backend-config"]["kernel_call_count"] == 1
    aliasing = metadata["aliasing"]
    assert (aliasing["io_map"], aliasing["original_output_count"]) == ({1: 2, 2: 0}, 2)
    assert metadata["in-place-to-out-of-place"]["inplace"] == {
        "aten.add_.Tensor": 1,
        "aten.copy_.default": 1,
        "device_kernel.fx_store_tft_0.default": 1,
    }
    assert metadata["replica-groups"] == {"resolved_count": 0, "replica_groups": {}, "groups": {}}
    assert "cpu" not in functional.code or target != "xla"
    if target != "xla":
        _check_write_back(functional, aliasing["io_map"], aliasing["original_output_count"])


def _check_write_back(functional: fx.GraphModule, io_map: dict[int, int], count: int) -> None:
    """The functional graph leaves inputs alone; its outputs, copied onto them, leave eager's memory."""
    expected, given, untouched = inputs(), inputs(), inputs()
    wanted = decoder(*expected)
    outputs = functional(*given)
    torch.testing.assert_close(given, untouched, rtol=0, atol=0)
    for output, index in io_map.items():
        given[index].copy_(outputs[output])
    torch.testing.assert_close(given, expected, rtol=0, atol=0)
    torch.testing.assert_close(list(outputs[:count]), list(wanted[:count]), rtol=0, atol=0)


@pytest.mark.parametrize("name", list(ir.neuron.FX_PASSES))
def test_each_pass_alone(graph: fx.GraphModule, name: str):
    result, metadata = ir.neuron.run_fx_passes(graph, inputs(), "cpu", passes=name)
    assert list(metadata) == [name]
    result.graph.lint()
    if name != "in-place-to-out-of-place":
        given, expected = inputs(), inputs()
        outputs = result(*given)
        torch.testing.assert_close(outputs[0], decoder(*expected)[0])
        torch.testing.assert_close(given, expected, rtol=0, atol=0)


def test_the_functional_graph_alone(graph: fx.GraphModule):
    functional, metadata = ir.neuron.make_functional(graph, inputs())
    assert metadata["original_output_count"] == 2
    _check_write_back(functional, metadata["io_map"], 2)


def test_inputs_by_metas_alone(graph: fx.GraphModule):
    _, metadata = ir.neuron.run_fx_passes(graph, target_device="xla")
    assert metadata["aliasing"]["io_map"] == {1: 2, 2: 0}


def test_a_pass_that_does_not_exist(graph: fx.GraphModule):
    with pytest.raises(ValueError, match="'replica-group', did you mean 'replica-groups'"):
        ir.neuron.run_fx_passes(graph, inputs(), passes="aliasing,replica-group")


# Kernels


def _config(node: fx.Node) -> object:
    return json.loads(base64.b64decode(str(node.kwargs["backend_config"])))


def _kernel_nodes(gm: fx.GraphModule) -> Sequence[fx.Node]:
    return [node for node in gm.graph.nodes if "backend_config" in node.kwargs]


WANTED = {"func": "fx_store", "grid": [2], "has_collectives": True, "artifact": "store.bin", "constants": {"1": 0.5}}


def test_backend_configs_of_dynamos_graph(graph: fx.GraphModule):
    result, metadata = ir.neuron.fill_backend_configs(graph)
    (node,) = _kernel_nodes(result)
    assert _config(node) == WANTED
    assert node.kwargs["operand_output_aliases"] == {0: 0}
    assert metadata == {
        "kernel_call_count": 1,
        "kernels": {node.name: {"name": "fx_store", "operand_output_aliases": {0: 0}}},
    }
    again, _ = ir.neuron.fill_backend_configs(result)
    assert _kernel_nodes(again)[0].kwargs == node.kwargs
    assert not _kernel_nodes(graph)


def test_backend_configs_go_through_the_ir(graph: fx.GraphModule):
    filled, _ = ir.neuron.fill_backend_configs(graph)
    module = ir.run_passes(ir.parse(str(ir.import_fx(filled, inputs()))), "functionalize")
    (call,) = [op for op in module.walk() if op.name == "torch.call" and "fx_store" in op.target]
    config = base64.b64encode(json.dumps(WANTED, sort_keys=True).encode()).decode()
    assert f'backend_config = "{config}"' in str(call)
    functional, _ = ir.neuron.run_fx_passes(graph, inputs())
    assert [_config(node) for node in _kernel_nodes(functional)] == [WANTED]


def test_backend_configs_of_operators():
    gm = make_fx(lambda kv, rows: store[2](kv, 0.5, rows))(torch.zeros(4, 2), torch.ones(1, 2))
    result, metadata = ir.neuron.fill_backend_configs(gm)
    assert metadata["kernel_call_count"] == 1
    assert [_config(node) for node in _kernel_nodes(result)] == [WANTED]
    kv = torch.zeros(4, 2)
    result(kv, torch.ones(1, 2))
    assert kv[0].tolist() == [0.5, 0.5]


def test_a_grid_that_is_not_constant():
    graphs: list[fx.GraphModule] = []
    program = torch.compile(
        lambda kv, rows: store[rows.shape[0]](kv, 0.5, rows),
        backend=lambda gm, given: graphs.append(gm) or gm.forward,
        fullgraph=True,
        dynamic=True,
    )
    program(torch.zeros(8, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"node `\w+` \(.*test_fx_passes.py:\d+\): .*'fx_store'.* the grid .* is not"):
        ir.neuron.fill_backend_configs(graphs[0])
