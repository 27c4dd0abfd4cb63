"""`ir.alias_outputs`: FX graphs with their mutated inputs as outputs, and what is said of them."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import vllm_ir as ir


def captured(fn: Callable[..., object], *inputs: object, dynamic: bool = False) -> tuple[fx.GraphModule, list[object]]:
    """The graph that Dynamo makes of a function, and its inputs."""
    found: list[tuple[fx.GraphModule, list[object]]] = []

    def backend(gm: fx.GraphModule, given: list[object]) -> Callable[..., object]:
        found.append((gm, list(given)))
        return lambda *args: gm.forward(*[a.clone() if isinstance(a, Tensor) else a for a in args])

    torch._dynamo.reset()
    torch.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)(*inputs)
    [result] = found
    return result


def cache_step(cache, key):
    cache[0, 1] = key
    cache.unbind(0)[1][2].add_(key)
    return cache.sum(), cache[1], key


def test_the_graph_returns_what_it_mutates():
    cache, key = torch.zeros(2, 4, 3), torch.ones(3)
    gm, inputs = captured(cache_step, cache, key)
    before = gm.code
    result, meta = ir.alias_outputs(gm, inputs)
    assert gm.code == before
    assert meta["original_output_count"] == 2  # Dynamo itself returns inputs that are returned as they are
    assert meta["io_map"] == {2: 0}
    assert meta["output_views"] == {1: (0, (4, 3), (3, 1), 12, torch.float32)}
    total, piece, changed = result(cache, key)
    assert changed is cache
    assert piece.untyped_storage().data_ptr() == cache.untyped_storage().data_ptr()
    assert total == 6
    assert torch.equal(cache[0, 1], key)


def test_inputs_are_only_looked_at():
    cache, key = torch.zeros(2, 4, 3), torch.ones(3)
    gm, _ = captured(cache_step, cache.clone(), key)
    ir.alias_outputs(gm, [cache, key])
    assert not cache.any()
    assert cache._version == 0


def test_fake_inputs():
    gm, _ = captured(cache_step, torch.zeros(2, 4, 3), torch.ones(3))
    with FakeTensorMode() as mode:
        inputs = [torch.empty(2, 4, 3), torch.empty(3)]
    gm = copy.deepcopy(gm)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta = {"val": value}
    assert ir.alias_outputs(gm, inputs)[1]["io_map"] == {2: 0}
    assert ir.alias_outputs(gm)[1]["io_map"] == {2: 0}
    assert mode is inputs[0].fake_mode


def test_inputs_in_one_storage():
    def program(x, y):
        x[0].add_(1)
        return x.sum()

    gm = fx.symbolic_trace(program)
    base = torch.zeros(4, 4)
    assert ir.alias_outputs(gm, [base, base[0]])[1]["io_map"] == {1: 0, 2: 1}
    assert ir.alias_outputs(gm, [base, base[1]])[1]["io_map"] == {1: 0}
    assert ir.alias_outputs(gm, [base, base])[1]["io_map"] == {1: 0, 2: 1}
    assert ir.alias_outputs(gm, [base, torch.zeros(4)])[1]["io_map"] == {1: 0}


def test_names_decide_nothing():
    def program(mutated_input, out, x_clone, root_input):
        x_clone.add_(1)
        return out

    inputs = [torch.zeros(2, 2) for _ in range(4)]
    assert ir.alias_outputs(fx.symbolic_trace(program), inputs)[1]["io_map"] == {0: 1, 1: 2}


def test_nested_outputs_become_flat():
    def program(x, y):
        x.add_(1)
        return {"a": (y * 2, None), "b": [3, x, y.t()]}

    x, y = torch.ones(2, 3), torch.ones(2, 3)
    result, meta = ir.alias_outputs(fx.symbolic_trace(program), [x, y])
    assert (meta["io_map"], meta["original_output_count"]) == ({3: 0}, 5)
    assert meta["output_views"] == {4: (1, (3, 2), (1, 3), 0, torch.float32)}
    outputs = result(x, y)
    assert len(outputs) == 5
    assert outputs[3] is x
    assert outputs[1:3] == (None, 3)


@pytest.mark.parametrize("output", [(), (None, None), 5])
def test_outputs_that_are_no_tensors(output):
    graph = fx.Graph()
    graph.call_method("add_", (graph.placeholder("x"), 1))
    graph.output(output)
    result, meta = ir.alias_outputs(fx.GraphModule(nn.Module(), graph), [torch.zeros(2)])
    count = len(output) if isinstance(output, tuple) else 1
    assert (meta["io_map"], meta["original_output_count"]) == ({count: 0}, count)
    x = torch.zeros(2)
    assert result(x)[count] is x


def test_module_attributes_are_inputs_behind_the_placeholders():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(3))
            self.register_buffer("cache", torch.zeros(3))

        def forward(self, x, y):
            self.cache.add_(x)
            y.mul_(self.weight)
            return x * 2

    model = Model()
    result, meta = ir.alias_outputs(fx.symbolic_trace(model), [torch.ones(3), torch.ones(3)])
    names = meta["attributes"]
    assert sorted(names) == ["cache", "weight"]
    assert meta["io_map"] == {1: 1, 2: 2 + names.index("cache")}
    assert result(torch.ones(3), torch.ones(3))[2] is result.cache
    assert torch.equal(result.cache, torch.ones(3))


def test_symbolic_views():
    gm, inputs = captured(lambda x: (*(x[1:].add_(1), x.t())[1:], x.shape[0]), torch.ones(5, 4), dynamic=True)
    meta = ir.alias_outputs(gm, inputs)[1]
    tensor = next(index for index, value in enumerate(inputs) if isinstance(value, Tensor))
    [(position, view)] = meta["output_views"].items()
    rows, columns = (str(size) for size in gm.graph.find_nodes(op="placeholder")[tensor].meta["example_value"].shape)
    assert view == (tensor, (columns, rows), (1, columns), 0, torch.float32)
    assert position == 0
    assert tensor in meta["io_map"].values()
