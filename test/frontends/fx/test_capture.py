"""Callables, modules and exported programs are captured with their state as attributes, mutated in place."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor

from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.capture import capture_callable, capture_exported
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.locations import parse_location, user_location
from vllm_ir.frontends.fx.normalize import Normalized

ATEN = torch.ops.aten


class Model(nn.Module):
    """Registered and plain state, nested inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("count", torch.zeros(6), persistent=False)
        self.register_buffer("total", torch.zeros(6))
        self.scale = torch.tensor([3.0] * 6)

    def forward(self, x: torch.Tensor, caches: dict[str, list[torch.Tensor]]) -> dict[str, Any]:
        self.count.add_(1)
        self.total.copy_(self.total + x[0])
        caches["k"][0].mul_(2)
        return {"y": self.norm(self.linear(x)), "rest": [x + self.count, (x * self.scale, None)]}


class CachesInLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.caches = [torch.zeros(6), torch.zeros(6)]
        self.by_name = {"v": torch.zeros(6)}
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.caches[1].add_(x)
        self.by_name["v"] += 2
        return self.caches[1] + self.caches[0]


def run(n: Normalized, owner: nn.Module, *inputs: object) -> object:
    attributes = [fetch_attribute(owner, name) for name in n.attributes]
    return fx.Interpreter(n.graph_module).run(*inputs, *attributes)


def example() -> tuple[torch.Tensor, dict[str, list[torch.Tensor]]]:
    torch.manual_seed(0)
    return torch.randn(4, 6), {"k": [torch.ones(3)]}


def input_names(n: Normalized) -> list[str]:
    return [node.name for node in n.graph_module.graph.find_nodes(op="placeholder")][
        : len(n.inputs) - len(n.attributes)
    ]


def compare_with_eager(n: Normalized, captured: nn.Module, eager: nn.Module) -> None:
    """Runs the graph on the state of `captured`, and `eager` itself; outputs, state and inputs are the same."""
    x, caches = example()
    (_, mine), (_, theirs) = example(), example()
    del caches
    with torch.no_grad():
        got = run(n, captured, x, mine["k"][0])
        expected = eager(x, theirs)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    torch.testing.assert_close(dict(captured.named_buffers()), dict(eager.named_buffers()), rtol=0, atol=0)


@pytest.mark.parametrize("training", [False, True])
def test_module(training):
    model = Model().train(training)
    eager = copy.deepcopy(model)
    n = capture_callable(model, *example())
    assert torch.equal(model.count, torch.zeros(6)), "capturing ran on real state"
    assert not any(isinstance(tensor, FakeTensor) for tensor in (*model.buffers(), *model.parameters(), model.scale))
    assert input_names(n) == ["x", "caches_k_0"]
    assert {"count", "total", "scale", "linear.weight"} <= set(n.attributes)
    compare_with_eager(n, model, eager)
    assert ("norm.num_batches_tracked" in n.attributes) == training


def test_tensors_in_lists_and_dictionaries():
    model = CachesInLists()
    eager = copy.deepcopy(model)
    n = capture_callable(model, torch.ones(6))
    assert set(n.attributes) == {"caches.0", "caches.1", "by_name.v"}
    assert model.calls == 0
    assert torch.equal(run(n, model, torch.ones(6)), eager(torch.ones(6)))
    assert torch.equal(model.caches[1], torch.ones(6))
    assert torch.equal(model.by_name["v"], eager.by_name["v"])


def test_function_method_and_closure():
    model = Model().eval()
    x, caches = example()

    def double(a, b=1, *rest):
        return a * 2 + b, rest

    n = capture_callable(double, x, 3, [x, x])
    assert input_names(n) == ["a", "b", "arg2_0", "arg2_1"]
    assert n.attributes == ()
    assert "linear.weight" in capture_callable(model.forward, x, caches).attributes
    assert "model.linear.weight" in capture_callable(lambda x: model(x, caches={"k": [x]})["y"], x).attributes
    assert input_names(capture_callable(torch.sin, x)) in (["arg0"], ["input"])


def test_nodes_know_the_users_lines():
    def program(x):
        y = x + 1
        return torch.nn.functional.softmax(y, 0)

    n = capture_callable(program, torch.ones(3))
    first = program.__code__.co_firstlineno
    lines = [
        user_location(node) for node in n.graph_module.graph.find_nodes(op="call_function", target=ATEN.add.Tensor)
    ]
    assert lines == [(__file__, first + 1)]
    (softmax,) = n.graph_module.graph.find_nodes(op="call_function", target=ATEN._softmax.default)
    assert user_location(softmax) == (__file__, first + 2)


def test_capturing_inside_inference_mode():
    with torch.inference_mode():
        n = capture_callable(lambda x: x.mul_(2).t_(), torch.ones(3, 2))
    x = torch.ones(3, 2)
    assert run(n, nn.Module(), x) is x
    assert torch.equal(x, torch.full((2, 3), 2.0))


def test_data_dependent_sizes():
    n = capture_callable(lambda x: x[x > 0] * 2, torch.tensor([1.0, -1.0, 2.0]))
    assert torch.equal(run(n, nn.Module(), torch.tensor([3.0, 4.0, -1.0])), torch.tensor([6.0, 8.0]))


class Assigns(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        setattr(self, self.name, self.state + x)
        return x


@pytest.mark.parametrize("name", ["state", "fresh"])
def test_assigning_a_tensor_to_an_attribute_is_refused(name):
    module = Assigns(name)
    with pytest.raises(FxImportError, match=f"assigns a new tensor to its attribute `{name}`"):
        capture_callable(module, torch.ones(3))
    assert type(module.state) is torch.Tensor
    assert not hasattr(module, "fresh")


OUTSIDE = torch.ones(3)


def bad_shape(x):
    return x.view(7)


def data_dependent_branch(x):
    return x if x.sum() > 0 else -x


def data_dependent_result(x):
    return x if torch.equal(x, x) else -x


def uses_a_global_tensor(x):
    return x + OUTSIDE


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (bad_shape, "invalid for input of size 3"),
        (data_dependent_branch, "data-dependent"),
        (data_dependent_result, r"aten\.equal\.default gives what depends on elements"),
        (uses_a_global_tensor, "a tensor that is neither an argument nor held by a traced module"),
    ],
)
def test_errors_name_the_users_line(function, message):
    with pytest.raises(FxImportError, match=message) as caught:
        capture_callable(function, torch.ones(3))
    assert caught.value.location == (__file__, function.__code__.co_firstlineno + 1)
    assert f"{__file__}:{function.__code__.co_firstlineno + 1}" in str(caught.value)
    assert caught.value.__cause__ is not None


# Exported programs.


@pytest.mark.parametrize("form", ["program", "file", "decomposed"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_exported_program(form, dynamic, tmp_path: Path):
    model = Model().eval()
    shapes = {"x": {0: torch.export.Dim("batch", min=2)}, "caches": {"k": [None]}} if dynamic else None
    program = torch.export.export(model, example(), dynamic_shapes=shapes)
    if form == "file":
        torch.export.save(program, tmp_path / "model.pt2")
    n = capture_exported(
        {"program": program, "file": tmp_path / "model.pt2", "decomposed": None}[form] or program.run_decompositions()
    )
    assert {"linear.weight", "count", "total", "scale"} <= set(n.attributes)
    assert not n.constants
    assert isinstance(n.inputs[0].size(0), torch.SymInt) == dynamic
    eager = copy.deepcopy(model)
    compare_with_eager(n, model, eager)
    assert torch.equal(model.count, torch.ones(6))


def test_exported_conditional_keeps_its_branches():
    class Conditional(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    n = capture_exported(torch.export.export(Conditional(), (torch.ones(3),)))
    assert any(node.target is torch.ops.higher_order.cond for node in n.graph_module.graph.nodes)
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(run(n, nn.Module(), x), Conditional()(x))


def test_files_that_are_no_programs(tmp_path: Path):
    with pytest.raises(FxImportError, match=r"there is no file .*nothing\.pt2"):
        capture_exported(tmp_path / "nothing.pt2")
    (tmp_path / "text.pt2").write_text("no archive")
    with pytest.raises(FxImportError, match=r"text\.pt2` is not a program saved by torch\.export\.save"):
        capture_exported(str(tmp_path / "text.pt2"))
    torch.save({"a": 1}, tmp_path / "state.pt2")
    with pytest.raises(FxImportError, match=r"state\.pt2` is not a program saved by torch\.export\.save"):
        capture_exported(tmp_path / "state.pt2")


def test_locations_skip_torch_and_the_standard_library():
    inside = torch.nn.modules.linear.__file__
    user = '  File "/home/me/model.py", line 12, in forward\n    self.linear(x)\n'
    torchs = f'  File "{inside}", line 134, in forward\n    return F.linear(x)\n'
    assert parse_location(user + torchs) == ("/home/me/model.py", 12)
    assert parse_location(torchs) == (inside, 134)
    assert parse_location("") is None


def test_strides_are_those_of_eagers_kernels():
    x = torch.rand(58).as_strided((1, 3, 3, 3), (18, 2, 6, 18))
    (result,) = capture_callable(_fill_column, x).graph_module.graph.output_node().args
    assert isinstance(result, torch.fx.Node)
    assert result.meta["val"].stride() == _fill_column(x).stride()


def test_branches_are_captured_with_strides_of_eager():
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    targets = [node.target for node in capture_callable(program, torch.rand(3)).graph_module.graph.nodes]
    assert torch.ops.higher_order.cond in targets


def test_types_that_eager_refuses_are_refused_with_the_line_of_the_user():
    with pytest.raises(FxImportError, match=r"test_capture\.py:\d+\): eager refuses it"):
        capture_callable(lambda i: torch.round(i > 2), torch.arange(6))


def _fill_column(x: torch.Tensor) -> torch.Tensor:
    return x.index_fill(3, torch.tensor([1]), -2)
