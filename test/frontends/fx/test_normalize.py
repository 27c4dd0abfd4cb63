"""Normalised graphs mutate, view and return exactly what the original programs do."""

import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import fx, nn
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.normalize import Normalized, normalize

ATEN = torch.ops.aten
SYMBOLIC_FUNCTIONS = {f for m in (operator, torch) for f in vars(m).values() if callable(f)}


@torch.library.custom_op("normalize_test::bump", mutates_args=("x",))
def bump(x: torch.Tensor, by: float) -> None:
    x.add_(by)


@torch.library.custom_op("normalize_test::double_and_add", mutates_args=("x",))
def double_and_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + y


@double_and_add.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def run_normalized(n: Normalized, owner: nn.Module, *inputs: object) -> object:
    attributes = [fetch_attribute(owner, name) for name in n.attributes]
    return fx.Interpreter(n.graph_module).run(*inputs, *attributes)


def compile_and_compare(function: Callable[..., Any], *inputs: object, dynamic: bool = False) -> list[Normalized]:
    """Runs `function` in eager and normalised under Dynamo, compares all that a caller can see, returns the graphs."""
    made: list[Normalized] = []

    def backend(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        n = normalize(gm, example_inputs)
        check_form(n)
        made.append(n)
        return lambda *args: run_normalized(n, gm, *args)

    mine, eagers = copy.deepcopy(inputs), copy.deepcopy(inputs)
    with torch.no_grad():
        torch.manual_seed(0)
        expected, expected_next = function(*eagers), torch.rand(1)
        torch.manual_seed(0)
        got, next_ = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)(*mine), torch.rand(1)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    torch.testing.assert_close(mine, eagers, rtol=0, atol=0)
    assert torch.equal(next_, expected_next), "the random state differs"
    assert made
    return made


def check_form(n: Normalized) -> None:
    """Only operators, sub-graphs and functions of symbolic numbers; every value known, none with a gradient."""
    placeholders = n.graph_module.graph.find_nodes(op="placeholder")
    assert len(placeholders) == len(n.inputs) == len(n.final_inputs)
    for node in n.graph_module.graph.nodes:
        if node.op == "get_attr":
            value = fetch_attribute(n.graph_module, node.target)
            assert isinstance(value, fx.GraphModule) or value is n.constants[node.target]
        elif node.op == "call_function":
            target = node.target
            assert isinstance(target, (OpOverload, HigherOrderOperator)) or target in SYMBOLIC_FUNCTIONS
            for value in pytree.tree_leaves(node.meta["val"]):
                assert not isinstance(value, torch.Tensor) or (type(value) is FakeTensor and not value.requires_grad)
        else:
            assert node.op in ("placeholder", "output")
    assert not any(isinstance(constant, FakeTensor) for constant in n.constants.values())


def check_storages(n: Normalized, *inputs: object) -> None:
    """Nodes share memory in the fakes exactly if they do when the graph runs; and so do dtypes, sizes and strides."""
    real: dict[fx.Node, object] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            real[n] = pytree.tree_map_only(torch.Tensor, lambda t: (t.detach(), t.size(), t.stride()), result)
            return result

    Recorder(n.graph_module, garbage_collect_values=False).run(*inputs)
    pairs: list[tuple[int, int]] = []
    for node, value in real.items():
        if node.op in ("output", "get_attr"):
            continue
        fakes = [v for v in pytree.tree_leaves(node.meta["val"]) if isinstance(v, torch.Tensor)]
        reals = pytree.tree_leaves(value, is_leaf=lambda v: isinstance(v, tuple) and isinstance(v[0], torch.Tensor))
        reals = [v for v in reals if isinstance(v, tuple)]
        for fake, (tensor, size, stride) in zip(fakes, reals, strict=True):
            # Strides of dimensions of size one mean nothing, and fakes have others than real tensors.
            strides = [(f, r) for f, r, n in zip(fake.stride(), stride, size, strict=True) if n > 1]
            assert (fake.dtype, fake.size()) == (tensor.dtype, size), node
            assert all(f == r for f, r in strides), node
            assert fake.storage_offset() == tensor.storage_offset(), node
            pairs.append((fake.untyped_storage()._cdata, tensor.untyped_storage()._cdata))
    assert len({fake for fake, _ in pairs}) == len({r for _, r in pairs}) == len(set(pairs))


def targets(n: Normalized) -> list[object]:
    return [node.target for node in n.graph_module.graph.nodes if node.op == "call_function"]


def named(n: Normalized) -> dict[str, fx.Node]:
    return {node.name: node for node in n.graph_module.graph.nodes}


# Programs. Each takes a 4 by 6 matrix and a vector of 6.


def python_operators(x, y):
    x[0] = y
    x += 1
    x[1:3, ::2] = y[:3]
    x[x > 2] = 0
    x.T[1] *= 3
    return x.T, -x


def in_place_and_out(x, y):
    first, second = x.chunk(2)
    second.add_(first)
    out = torch.empty(3)
    torch.add(y[:3], 1, out=out)
    torch.nn.functional.relu(x, inplace=True)
    x.clamp_(min=-1).data.mul_(2)
    return out, second, x


def views(x, y):
    a, b, *_ = x.unbind(0)
    a.add_(b)
    p, q = x.split([1, 3])
    q.mul_(2)
    x.view(-1)[3] = 9
    x.as_strided((2, 2), (7, 1), 1).zero_()
    x.diagonal().add_(1)
    x.unfold(1, 2, 2)[0].neg_()
    x.view(torch.int32)[3].zero_()
    return p, x.unsqueeze(0).expand(2, -1, -1), x.flatten(), y.view(torch.int16)


def metadata_mutation(x, y):
    a = x.t()
    a.unsqueeze_(0).add_(1)
    a.squeeze_()
    b = a.clone()
    b.t_()
    return a, b


def custom_operators(x, y):
    bump(x, 2.0)
    z = double_and_add(x[0], y)
    torch.ops.normalize_test.bump(x[1], 1.5)
    return z


def foreach(x, y):
    torch._foreach_add_([x[0], y], 1.0)
    return torch._foreach_mul([x, y], 2)


def random_numbers(x, y):
    torch.rand(3)  # nobody uses it, but it moves the generator
    x.bernoulli_()
    dropped = torch.nn.functional.dropout(x, 0.5, True)
    y.normal_()
    torch.randint(0, 4, (2,))
    return dropped + torch.randn_like(x)


def constants(x, y):
    table = torch.tensor([1.0, 2.0])
    table.add_(1)
    x.index_put_((torch.tensor([0, 1]),), y)
    return table, x.new_tensor(7), x.new_tensor([1, 2]), torch.full((2, 2), 3.0), torch.tensor(5).item() * y


def casts(x, y):
    same = x.to(torch.float32)
    same.add_(1)
    return x.to(torch.float64), x.contiguous(), x.bfloat16() @ y.bfloat16()


def view_copies(x, y):
    strided = torch.as_strided_copy(x, (3, 2), (1, 2), 1)
    rows = torch.unbind_copy(x)
    x.zero_()
    others = (
        torch.transpose_copy(x, 0, 1),
        torch.view_copy(y, (2, 3)),
        torch.alias_copy(y),
        torch.narrow_copy(y, 0, 1, 2),
    )
    return strided, rows, torch.split_copy(y, 2), others, torch.slice_scatter(x, x[:2] + 1, 0, 0, 2)


def modules(x, y):
    normed = torch.nn.functional.layer_norm(x, (6,))
    attended = torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])
    return normed, attended, torch.nn.functional.embedding(torch.tensor([1, 2]), x), torch.vmap(torch.sum)(x)


def gradient_modes(x, y):
    with torch.enable_grad():
        z = x + 1
    with torch.no_grad():
        z.mul_(2)
    with torch.inference_mode():
        z = z - y
    return z


def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = x @ x.T
        with torch.autocast("cpu", enabled=False):
            high = x @ x.T
    return low, high, x @ x.T


def checkpoint(x, y):
    return torch.utils.checkpoint.checkpoint(lambda x: (x.sin() + y).cos(), x, use_reentrant=False)


def conditional(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: x + y, lambda x, y: x * y, (x, y))


def conditional_with_mutation(x, y):
    def positive(x):
        x.add_(1)
        return x.clone()

    return torch.cond(x.sum() > 0, positive, lambda x: x * torch.tensor([2.0] * 6), (x,))


def loop(x, y):
    start = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (start, x))


def asserts(x, y):
    torch._assert_async(x.sum() < 1e9)
    x.add_(1)
    return y.clone()


def data_dependent(x, y):
    n = (y > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= 6)
    positive = x[x > 0]
    positive.mul_(2)
    return y[:n].clone(), torch.zeros(n), positive, torch.nonzero(y), x.sum().item() * y


def complex_numbers(x, y):
    z = torch.view_as_complex(x.view(4, 3, 2))
    z.mul_(2j)
    return z.conj() * 2, torch.view_as_real(z.conj().resolve_conj())


PROGRAMS = [
    python_operators, in_place_and_out, views, metadata_mutation, custom_operators, foreach, random_numbers, constants,
    casts, view_copies, modules, gradient_modes, autocast, checkpoint, conditional, conditional_with_mutation, loop,
    asserts, data_dependent, complex_numbers,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_is_unchanged(program, dynamic):
    torch.manual_seed(1)
    x, y = torch.randn(4, 6), torch.randn(6)
    (n,) = compile_and_compare(program, x, y, dynamic=dynamic)
    if not dynamic and program not in (data_dependent, autocast):  # the graph alone cannot run under autocast's state
        check_storages(n, *(x.clone() if t.dim() == 2 else y.clone() for t in n.inputs))


def test_compiling_inside_inference_mode():
    with torch.inference_mode():
        x = torch.randn(4, 6)
        (n,) = compile_and_compare(lambda x: x.mul_(2).t(), x)
    assert targets(n) == [ATEN.mul_.Tensor, ATEN.t.default]


def test_dynamo_symbols_are_kept_and_no_guard_is_added():
    seen: list[object] = []

    def backend(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        metas = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
        shape_env = next(m for m in metas if isinstance(m, torch.Tensor)).fake_mode.shape_env
        before = len(shape_env.guards), dict(shape_env.replacements), len(shape_env.deferred_runtime_asserts)
        n = normalize(gm, example_inputs)
        assert (len(shape_env.guards), dict(shape_env.replacements), len(shape_env.deferred_runtime_asserts)) == before
        for mine, meta in zip(n.inputs, metas, strict=True):
            assert isinstance(meta, torch.SymInt) == isinstance(mine, torch.SymInt)
            sizes = [(mine, meta)] if isinstance(meta, torch.SymInt) else zip(mine.size(), meta.size(), strict=True)
            assert all(a.node.expr is b.node.expr for a, b in sizes)
        seen.append(n)
        return gm.forward

    def program(x, y):
        x[:, : y.shape[0]].add_(y)
        return x.view(-1)[2:], torch.zeros(x.shape[0] + 1), x.shape[1]

    torch.compile(program, backend=backend, dynamic=True)(torch.randn(4, 6), torch.randn(6))
    assert len(seen) == 1


def test_normalizing_twice_in_one_compilation_gives_the_same_graph():
    code: list[str] = []

    def backend(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        code.extend(normalize(gm, example_inputs).graph_module.code for _ in range(2))
        return gm.forward

    torch.compile(metadata_mutation, backend=backend, dynamic=True)(torch.randn(4, 6), torch.randn(6))
    assert code[0] == code[1]
    assert "unsqueeze_" in code[0]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("examples", ["none", "real", "metas"])
def test_normalizing_after_compilation(dynamic, examples):
    kept: list[tuple[fx.GraphModule, list[object]]] = []

    def program(x, y):
        x.add_(1)
        return x.t() @ y

    def backend(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        kept.append((gm, example_inputs))
        return gm.forward

    torch.compile(program, backend=backend, dynamic=dynamic)(torch.randn(4, 6), torch.randn(4, 5))
    ((gm, real),) = kept
    metas = [node.meta["example_value"] for node in gm.graph.find_nodes(op="placeholder")]
    n = normalize(gm, {"none": None, "real": real, "metas": metas}[examples])
    assert targets(n) == [ATEN.add_.Tensor, ATEN.t.default, ATEN.mm.default]
    assert [str(value) for value in n.inputs] == [str(meta) for meta in metas]


def graph_of(build: Callable[[fx.Graph], object], root: nn.Module | None = None) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(build(graph))
    return fx.GraphModule(root or nn.Module(), graph)


def test_output_structure_and_identities():
    def build(g: fx.Graph) -> object:
        x, y = g.placeholder("x"), g.placeholder("y")
        z = g.call_function(torch.add, (x, y))
        return {"a": [x, z, None], "b": (z, 1, 2.5, True, "s"), "c": {"d": y}}

    n = normalize(graph_of(build), [torch.ones(3), torch.ones(3)])
    nodes = named(n)
    (output,) = n.graph_module.graph.output_node().args
    expected = {
        "a": [nodes["x"], nodes["add"], None],
        "b": (nodes["add"], 1, 2.5, True, "s"),
        "c": {"d": nodes["y"]},
    }
    assert output == expected


def test_names_locations_and_module_stacks_are_kept():
    def program(input, weight):
        doubled = input * 2
        doubled[0] = weight
        left, _right = doubled.split(3, dim=1)
        return torch.nn.functional.softmax(left, 0).relu()

    kept: list[tuple[fx.GraphModule, Normalized]] = []

    def backend(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        kept.append((gm, normalize(gm, example_inputs)))
        return gm.forward

    torch.compile(program, backend=backend)(torch.randn(4, 6), torch.randn(6))
    ((gm, n),) = kept
    original = {node.name for node in gm.graph.nodes if node.op != "output"}
    nodes = named(n)
    assert original <= set(nodes) | {"_right"}
    assert [node.name for node in gm.graph.find_nodes(op="placeholder")] == list(nodes)[: len(n.inputs)]
    assert nodes["setitem"].target is ATEN.copy_.default
    first_line = program.__code__.co_firstlineno
    lines = {name: user_location(node) for name, node in nodes.items()}
    assert lines["doubled"] == (__file__, first_line + 1)
    assert lines["setitem"] == (__file__, first_line + 2)
    assert lines["softmax"] == (__file__, first_line + 4)
    for node in gm.graph.nodes:
        if "nn_module_stack" in node.meta and node.name in nodes:
            assert nodes[node.name].meta["nn_module_stack"] == node.meta["nn_module_stack"]


def test_subgraph_nodes_have_values_and_locations():
    (n,) = compile_and_compare(conditional, torch.randn(4, 6), torch.randn(6))
    subgraphs = [m for m in n.graph_module.children() if isinstance(m, fx.GraphModule)]
    assert len(subgraphs) == 2
    for subgraph in subgraphs:
        (call,) = (node for node in subgraph.graph.nodes if node.op == "call_function")
        assert call.meta["val"].size() == (4, 6)
        location = user_location(call)
        assert location is not None
        assert location[0] == __file__


def test_constants_of_subgraphs_are_listed_under_distinct_names():
    def program(x):
        outside = torch.tensor([3.0] * 6)
        first, second = torch.tensor([1.0] * 6), torch.tensor([2.0] * 6)
        return (
            torch.cond(x.sum() > 0, lambda x: x + torch.tensor([7.0] * 6), lambda x: x - first, (x * second,)) + outside
        )

    (n,) = compile_and_compare(program, torch.randn(4, 6))
    found = sorted(float(constant[0]) for constant in n.constants.values())
    used = {
        node.target
        for module in n.graph_module.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.find_nodes(op="get_attr")
    }
    assert found == [1.0, 2.0, 3.0, 7.0]
    assert set(n.constants) <= used


def test_unused_results_with_effects_stay():
    def program(x, y):
        x[0].add_(1)
        torch.rand(2)
        bump(y, 1.0)
        torch._assert_async(y.sum() < 1e9)
        torch.add(x, 1, out=y.expand_as(x).contiguous())
        return 3

    (n,) = compile_and_compare(program, torch.randn(4, 6), torch.randn(6))
    for target in (ATEN.add_.Tensor, ATEN.rand.default, bump._opoverload, ATEN._assert_async.default, ATEN.add.out):
        assert target in targets(n)


def test_runtime_asserts_of_data_dependent_sizes_stay():
    def program(x, i):
        n = i.item()
        torch._check(n >= 1)
        torch._check(n < 4)
        return x.narrow(0, 0, n).clone()

    (n,) = compile_and_compare(program, torch.randn(4, 6), torch.tensor([2]))
    assert targets(n).count(ATEN._assert_scalar.default) >= 2
    graph = n.graph_module
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        fx.Interpreter(graph).run(torch.randn(4, 6), torch.tensor([4]))


def test_zero_dimensional_input_keeps_the_symbol_of_its_item():
    for dynamic in (False, True):
        torch._dynamo.reset()
        (n,) = compile_and_compare(
            lambda x, i: x[: i.item()].clone(), torch.randn(4, 6), torch.tensor(2), dynamic=dynamic
        )
        (item,) = (node for node in n.graph_module.graph.nodes if node.target is ATEN._local_scalar_dense.default)
        assert item.meta["val"].node.hint == 2


def test_view_copies_become_views_and_clones():
    (n,) = compile_and_compare(lambda x: torch.as_strided_copy(x, (3, 2), (1, 2), 1), torch.randn(4, 6))
    assert targets(n) == [ATEN.as_strided.default, ATEN.clone.default]
    (n,) = compile_and_compare(lambda x: torch.unbind_copy(x), torch.randn(2, 3))
    assert targets(n).count(ATEN.clone.default) == 2


def test_decompositions_are_applied():
    def decomposed_silu(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    gm = graph_of(lambda g: g.call_function(torch.nn.functional.silu, (g.placeholder("x"),)))
    n = normalize(gm, [torch.randn(3)], decompositions={ATEN.silu.default: decomposed_silu})
    assert targets(n) == [ATEN.sigmoid.default, ATEN.mul.Tensor]
    assert targets(normalize(gm, [torch.randn(3)])) == [ATEN.silu.default]


def test_graphs_from_aot_autograd_keep_auto_functionalized():
    from torch._dynamo.backends.common import aot_autograd

    made: list[Normalized] = []

    def compiler(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        n = normalize(gm, example_inputs)
        made.append(n)
        return fx.Interpreter(n.graph_module).run

    backend = aot_autograd(fw_compiler=compiler, inference_compiler=compiler)
    for dynamic in (False, True):
        torch._dynamo.reset()
        x, y = torch.randn(4, 6), torch.randn(6)
        mine, eagers = (x.clone(), y.clone()), (x.clone(), y.clone())
        with torch.no_grad():
            got = torch.compile(custom_operators, backend=backend, dynamic=dynamic)(*mine)
        assert torch.equal(got, custom_operators(*eagers))
        assert torch.equal(mine[0], eagers[0])
    for n in made:
        assert torch.ops.higher_order.auto_functionalized_v2 in targets(n)


# Attributes.


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 6)
        self.head = nn.Linear(6, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))])
        self.rnn = nn.LSTM(6, 6)
        self.register_buffer("state", torch.zeros(4, 6))
        self.register_buffer("window", self.state[1:3])
        self.register_buffer("same", self.state, persistent=False)
        self.unused = nn.Linear(2, 2)


def stateful_graph(owner: Stateful) -> fx.GraphModule:
    def build(g: fx.Graph) -> object:
        x = g.placeholder("x")
        g.call_method("add_", (g.get_attr("state"), 1))
        g.call_method("mul_", (g.get_attr("same"), 2))
        g.call_method("add_", (g.get_attr("window"), g.call_function(operator.getitem, (x, slice(2)))))
        h = g.call_module("layers.0", (x,))
        r = g.call_function(operator.getitem, (g.call_module("rnn", (h,)), 0))
        ids = g.call_function(torch.tensor, ([1, 2],))
        return [g.call_module("head", (g.call_module("embedding", (ids,)),)), r, g.get_attr("state")]

    return graph_of(build, owner)


def test_attributes_become_trailing_placeholders_and_keep_their_state():
    torch.manual_seed(0)
    owner = Stateful()
    mine, eagers = copy.deepcopy(owner), copy.deepcopy(owner)
    x = torch.randn(4, 6)
    gm = stateful_graph(mine)
    before = {name: id(tensor) for name, tensor in gm.state_dict(keep_vars=True).items()}
    n = normalize(gm, [x])
    assert {name: id(tensor) for name, tensor in gm.state_dict(keep_vars=True).items()} == before
    assert not any(isinstance(weight, FakeTensor) for weight in gm.get_submodule("rnn")._flat_weights)
    # One placeholder per tensor: `same` is `state`, and the tied weight is one; what the graph does not use is absent.
    assert n.attributes[:2] == ("state", "window")
    assert "same" not in n.attributes
    assert not any(name.startswith("unused") for name in n.attributes)
    assert ("embedding.weight" in n.attributes) != ("head.weight" in n.attributes)
    nodes = named(n)
    assert list(nodes)[: 1 + len(n.attributes)] == ["x", *(name.replace(".", "_") for name in n.attributes)]
    state, window = nodes["state"].meta["val"], nodes["window"].meta["val"]
    assert state.untyped_storage()._cdata == window.untyped_storage()._cdata
    assert window.storage_offset() == 6
    with torch.no_grad():
        got = run_normalized(n, gm, x)
        expected = fx.Interpreter(stateful_graph(eagers)).run(x)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    torch.testing.assert_close(dict(gm.named_buffers()), dict(stateful_graph(eagers).named_buffers()), rtol=0, atol=0)
    assert float(mine.state[0, 0]) == 2.0  # the module itself was mutated, through the attribute


def test_attributes_share_storage_with_inputs():
    root = nn.Module()
    root.register_buffer("cache", torch.zeros(8))

    def build(g: fx.Graph) -> object:
        x = g.placeholder("x")
        return g.call_method("add_", (x, 1)), g.get_attr("cache"), g.get_attr("cache")

    n = normalize(graph_of(build, root), [root.cache[2:4]])
    x, cache = (value for value in n.inputs if isinstance(value, torch.Tensor))
    assert x.untyped_storage()._cdata == cache.untyped_storage()._cdata
    assert (x.storage_offset(), cache.storage_offset()) == (2, 0)


def test_constant_does_not_take_the_name_of_an_attribute():
    root = nn.Module()
    root.register_buffer("_tensor_constant0", torch.zeros(2))

    def build(g: fx.Graph) -> object:
        constant = g.call_function(torch.tensor, ([1.0, 2.0],))
        return g.call_function(torch.add, (g.get_attr("_tensor_constant0"), constant))

    n = normalize(graph_of(build, root), [])
    assert n.attributes == ("_tensor_constant0",)
    ((name, value),) = n.constants.items()
    assert name != "_tensor_constant0"
    assert value.tolist() == [1.0, 2.0]
    assert torch.equal(run_normalized(n, graph_of(build, root)), torch.tensor([1.0, 2.0]))


def test_parameters_with_gradients_give_values_without():
    linear = nn.Linear(3, 3)
    gm = fx.symbolic_trace(linear)
    n = normalize(gm, [torch.randn(2, 3, requires_grad=True)])
    check_form(n)
    assert n.attributes == ("weight", "bias")
    assert linear.weight.requires_grad


# Metadata of inputs.


def test_metadata_mutation_of_an_input_shows_at_exit():
    def build(g: fx.Graph) -> object:
        x = g.placeholder("x")
        g.call_method("t_", (x,))
        return x

    example = torch.randn(4, 6)
    n = normalize(graph_of(build), [example])
    assert n.inputs[0].size() == (4, 6)
    assert (n.final_inputs[0].size(), n.final_inputs[0].stride()) == ((6, 4), (1, 6))
    assert example.size() == (4, 6)
    assert targets(n) == [ATEN.t_.default]


def test_resize_stays_a_node():
    n = normalize(graph_of(lambda g: g.call_method("resize_", (g.placeholder("x"), 9, 9))), [torch.randn(4, 6)])
    assert targets(n) == [ATEN.resize_.default]
    assert (n.inputs[0].size(), n.final_inputs[0].size()) == ((4, 6), (9, 9))


def test_meta_from_after_the_graph_is_refused():
    def build(g: fx.Graph) -> object:
        x = g.placeholder("x")
        g.call_method("t_", (x,))
        return x

    gm = graph_of(build)
    with torch._subclasses.FakeTensorMode():
        gm.graph.find_nodes(op="placeholder")[0].meta["example_value"] = torch.empty(6, 4)
    with pytest.raises(FxImportError, match=r"the shape or strides of input `x`.*pass example_inputs"):
        normalize(gm)
    assert normalize(gm, [torch.empty(4, 6)]).inputs[0].size() == (4, 6)


# Errors.


def test_error_names_the_node_and_the_users_line():
    def build(g: fx.Graph) -> object:
        added = g.call_method("add_", (g.placeholder("x"), 1.5))
        added.meta["stack_trace"] = '  File "model.py", line 3, in forward\n    x += 1.5\n'
        return added

    with pytest.raises(FxImportError, match=r"`add_` \(model\.py:3\): .*int.*float") as caught:
        normalize(graph_of(build), [torch.zeros(2, dtype=torch.int64)])
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.location == ("model.py", 3)


def test_data_dependent_control_flow_is_recognisable_in_the_chain():
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    gm = graph_of(lambda g: g.call_function(bool, (g.call_method("sum", (g.placeholder("x"),)),)))
    with pytest.raises(FxImportError) as caught:
        normalize(gm, [torch.ones(3)])
    assert isinstance(caught.value.__cause__, GuardOnDataDependentSymNode)


def test_autocast_is_left_as_it_was_after_an_error():
    def build(g: fx.Graph) -> object:
        enter = g.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, False))
        bad = g.call_function(torch.mm, (g.placeholder("x"), 1))
        g.call_function(torch.amp.autocast_mode._exit_autocast, (enter,))
        return bad

    with pytest.raises(FxImportError):
        normalize(graph_of(build), [torch.ones(3, 3)])
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (lambda: None, "input `x` has neither an example nor"),
        (lambda: [torch.ones(2), 1], "the graph has 1 inputs, but 2 examples were given"),
        (lambda: [torch.ones(2).to_sparse()], "input `x` has the layout torch.sparse_coo"),
        (lambda: [torch.ones(2, dtype=torch.complex64).conj()], "input `x` is a lazy conjugate"),
        (lambda: [torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)], "input `x` is quantized"),
        (lambda: [torch.masked.masked_tensor(torch.ones(2), torch.ones(2, dtype=torch.bool))], "subclass MaskedTensor"),
    ],
    ids=["none", "count", "sparse", "conj", "quantized", "subclass"],
)
@pytest.mark.filterwarnings("ignore")
def test_inputs_that_are_refused(examples, message):
    with pytest.raises(FxImportError, match=message):
        normalize(graph_of(lambda g: g.placeholder("x")), examples())


@pytest.mark.filterwarnings("ignore:Failed to fetch module")
def test_missing_attribute_is_named():
    gm = graph_of(lambda g: g.placeholder("x"))
    with gm.graph.inserting_before(gm.graph.output_node()), pytest.warns(UserWarning, match="reference"):
        gm.graph.get_attr("nowhere.weight")
    with pytest.raises(FxImportError, match=r"nowhere\.weight"):
        normalize(gm, [torch.ones(2)])


# Whole models.


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("dynamic", [False, True])
def test_decoder_with_static_cache(dynamic):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=20,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    made: list[Normalized] = []

    def backend(gm: fx.GraphModule, example_inputs: list[object]) -> Callable[..., object]:
        n = normalize(gm, example_inputs)
        check_form(n)
        made.append(n)
        return lambda *args: run_normalized(n, gm, *args)

    def steps(call: Callable[..., Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        cache = transformers.StaticCache(config=config, max_batch_size=1, max_cache_len=8)
        logits = []
        for position in range(3):
            step = torch.tensor([position])
            logits.append(call(step[None] + 4, past_key_values=cache, cache_position=step).logits)
        return logits, [layer.keys for layer in cache.layers]

    with torch.no_grad():
        # Not the model by itself: it computes otherwise, and rounds otherwise, while it is traced.
        expected = steps(torch.compile(model, backend="eager", dynamic=dynamic))
        torch._dynamo.reset()
        torch.testing.assert_close(
            steps(torch.compile(model, backend=backend, dynamic=dynamic)), expected, rtol=0, atol=0
        )
    assert made
