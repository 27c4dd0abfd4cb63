"""Exported graphs: names, metas, locations, fresh results, strides, attributes by reference, and the split form."""

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from xdsl.utils.exceptions import VerifyException

import vllm_ir as ir
from vllm_ir.backends.fx.export import export_split
from vllm_ir.frontends.fx.capture import capture_callable
from vllm_ir.frontends.fx.importer import import_normalized

_LIBRARY = torch.library.Library("export_test", "DEF")
_LIBRARY.define("strides_of(Tensor x) -> Tensor")
_LIBRARY.impl("strides_of", lambda x: torch.tensor(x.stride()), "CompositeExplicitAutograd")
torch.library.register_fake("export_test::strides_of", lambda x: x.new_empty(x.dim(), dtype=torch.int64), lib=_LIBRARY)
_LIBRARY.define("swap_halves_(Tensor(a!) x, Tensor y) -> ()")


def _swap_halves_(x: Tensor, y: Tensor) -> None:
    # Looks at y after it has written x: the two may be the same memory.
    half = x.shape[0] // 2
    x[:half] = y[half:]
    x[half:] = y[:half]


_LIBRARY.impl("swap_halves_", _swap_halves_, "CompositeExplicitAutograd")
torch.library.register_fake("export_test::swap_halves_", lambda x, y: None, lib=_LIBRARY)


def exported(fn, *inputs, passes="functionalize") -> fx.GraphModule:
    return ir.export_fx(ir.run_passes(ir.import_callable(fn, *inputs), passes))


def calls(gm: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]


def test_a_view_may_have_no_results():
    module = ir.import_callable(lambda x: (torch.unbind(x), x + 1)[1], torch.ones(0, 3))
    assert "aten.unbind.int" in str(module)
    gm = ir.export_fx(module)
    assert gm(torch.ones(0, 3)).shape == (0, 3)


def test_names_of_nodes_survive():
    graph = fx.Graph()
    query = graph.placeholder("query")
    scores = graph.create_node("call_function", torch.relu, (query,), name="scores")
    graph.output((graph.create_node("call_function", torch.neg, (scores,), name="final"),))
    gm = ir.export_fx(ir.import_fx(fx.GraphModule(nn.Module(), graph), [torch.ones(2)]))
    assert [node.name for node in gm.graph.nodes] == ["query", "scores", "final", "output"]


def test_every_node_has_a_fake_value():
    gm = exported(lambda x: (x[0].add_(1), x.sum())[1], torch.ones(2, 3))
    for node in gm.graph.nodes:
        if node.op != "output":
            assert isinstance(node.meta["val"], FakeTensor), node.format_node()


def test_locations_are_in_the_metas():
    gm = exported(lambda x: x.relu() + 1, torch.ones(2))
    [relu] = [node for node in gm.graph.nodes if node.target is torch.ops.aten.relu.default]
    assert "test_export.py" in relu.meta["stack_trace"]


def test_mutation_is_written_back_and_alias_returned():
    gm = exported(lambda x: x[0].add_(1), torch.ones(2, 3))
    x = torch.zeros(2, 3)
    out = gm(x)
    assert torch.equal(x, torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert out.data_ptr() == x.data_ptr()
    assert calls(gm).count("aten.copy_.default") == 1


def test_value_needed_after_the_write_is_cloned_before_it():
    def swap(a, b):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)

    gm = exported(swap, torch.ones(3), torch.zeros(3))
    a, b = torch.tensor([1.0, 2, 3]), torch.tensor([4.0, 5, 6])
    gm(a, b)
    assert (a.tolist(), b.tolist()) == ([4, 5, 6], [1, 2, 3])


def test_returned_tensors_are_new():
    def program(x):
        y = torch.ops.aten.clone(x)
        return y, x.t().clone()

    module = ir.run_passes(ir.import_callable(program, torch.ones(2, 2)), "functionalize")
    x = torch.ones(2, 2)
    first, second = ir.export_fx(module)(x)
    assert len({t.untyped_storage().data_ptr() for t in (x, first, second)}) == 3


def test_value_that_is_an_argument_is_cloned_when_returned():
    module = ir.parse(
        "vllm_ir.func functional @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {\n"
        "  vllm_ir.return (%x, %x) : tensor<3xf32>\n}".replace("(tensor<3xf32>, tensor<3xf32>)", "tensor<3xf32>")
    )
    x = torch.ones(3)
    first, second = ir.export_fx(module)(x)
    assert first.data_ptr() != x.data_ptr()
    assert first is second


def test_strides_of_results_are_those_of_eager():
    def program(x):
        t = x.t() * 2
        t.add_(1)
        return t, x[:, ::2] + 1

    gm = exported(program, torch.ones(2, 6))
    x = torch.randn(2, 6)
    assert [t.stride() for t in gm(x)] == [t.stride() for t in program(x)]


def test_layout_sensitive_operator_sees_the_strides_of_eager():
    def program(x, y):
        x.copy_(y.t())
        return torch.ops.export_test.strides_of(x)

    gm = exported(program, torch.ones(2, 3), torch.ones(3, 2))
    assert gm(torch.ones(2, 3), torch.ones(3, 2)).tolist() == [3, 1]


def test_custom_operator_is_called_functionally():
    gm = exported(lambda x, y: torch.ops.export_test.swap_halves_(x, y), torch.ones(4), torch.ones(4))
    assert calls(gm) == ["auto_functionalized", "<built-in function getitem>", "aten.copy_.default"]


def test_same_tensor_written_and_read_by_a_custom_operator():
    gm = exported(lambda x: torch.ops.export_test.swap_halves_(x, x), torch.ones(4))
    x, y = torch.arange(4.0), torch.arange(4.0)
    gm(x)
    _swap_halves_(y, y)
    assert torch.equal(x, y)


def test_attributes_are_taken_by_reference():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Module()
            self.inner.register_buffer("count", torch.zeros(2))

        def forward(self, x):
            return self.inner.count.add_(x) * 1

    model = Model()
    gm = ir.export_fx(ir.run_passes(ir.import_callable(model, torch.ones(2)), "functionalize"), like=model)
    gm(torch.ones(2))
    gm(torch.ones(2))
    assert model.inner.count.tolist() == [2, 2]
    assert gm.inner.count is model.inner.count


def test_missing_attribute_is_named():
    model = nn.BatchNorm1d(2)
    module = ir.import_callable(model.eval(), torch.ones(3, 2))
    with pytest.raises(VerifyException, match=r"'running_mean'|'weight'|'bias'|'running_var'"):
        ir.export_fx(module, like=nn.Module())


def test_without_like_attributes_are_placeholders():
    model = nn.Linear(2, 2)
    gm = ir.export_fx(ir.import_callable(model, torch.ones(2)))
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    assert len(names) == 3


def test_dynamic_text_exports_with_symbols():
    module = ir.parse(
        'vllm_ir.func functional @main(%n: i64 {vllm_ir.symbol = "s0"}, '
        '%x: tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>) -> '
        'tensor<?xf32, #vllm_ir.layout<sizes = ["4*s0"]>> {\n'
        "  %c = arith.constant 4 : i64\n  %m = arith.muli %n, %c : i64\n"
        "  %y = torch.call @aten.reshape.default(%x, [%m]) : "
        '(tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>, i64) -> '
        'tensor<?xf32, #vllm_ir.layout<sizes = ["4*s0"]>>\n'
        "  %z = torch.call @aten.neg.default(%y) : "
        '(tensor<?xf32, #vllm_ir.layout<sizes = ["4*s0"]>>) -> tensor<?xf32, #vllm_ir.layout<sizes = ["4*s0"]>>\n'
        '  vllm_ir.return %z : tensor<?xf32, #vllm_ir.layout<sizes = ["4*s0"]>>\n}'
    )
    gm = ir.export_fx(module)
    for rows in (2, 7):
        x = torch.randn(rows, 4)
        assert torch.equal(gm(rows, x), -x.reshape(-1))


# The split form


def split(fn, *inputs):
    normalized = capture_callable(fn, *inputs)
    module = ir.run_passes(import_normalized(normalized), "functionalize")
    return export_split(module, normalized.inputs, normalized.fake_mode)


def run_split(parts, *args):
    outputs = parts.core(*args)
    if parts.epilogue is None:
        return outputs
    return parts.epilogue(*[args[index] for index in parts.epilogue_arguments], *outputs)


def test_pure_program_has_no_epilogue():
    parts = split(lambda x: (x + 1, x * 2), torch.ones(2))
    assert parts.epilogue is None


def test_core_is_pure_and_epilogue_writes():
    def program(x, y):
        x[0].add_(y)
        return x.t(), x.sum()

    parts = split(program, torch.ones(2, 3), torch.ones(3))
    assert not any(getattr(n.target, "_schema", None) and n.target._schema.is_mutable for n in parts.core.graph.nodes)
    x, y = torch.randn(2, 3), torch.randn(3)
    same = x.clone()
    got, want = run_split(parts, x, y), program(same, y)
    assert torch.equal(x, same)
    assert torch.equal(got[0], want[0])
    assert got[0].data_ptr() == x.data_ptr()
    assert torch.equal(got[1], want[1])


def test_core_of_a_swap_does_not_return_its_inputs_twice_over():
    def swap(a, b):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)

    parts = split(swap, torch.ones(3), torch.zeros(3))
    a, b = torch.tensor([1.0, 2, 3]), torch.tensor([4.0, 5, 6])
    run_split(parts, a, b)
    assert (a.tolist(), b.tolist()) == ([4, 5, 6], [1, 2, 3])


def test_split_needs_a_functional_module():
    normalized = capture_callable(lambda x: x.add_(1), torch.ones(2))
    with pytest.raises(VerifyException, match="run functionalize first"):
        export_split(import_normalized(normalized), normalized.inputs, normalized.fake_mode)


def test_metas_live_in_the_given_mode():
    normalized = capture_callable(lambda x: x.add_(1) * 2, torch.ones(2))
    module = ir.run_passes(import_normalized(normalized), "functionalize")
    core = export_split(module, normalized.inputs, normalized.fake_mode).core
    assert isinstance(normalized.fake_mode, FakeTensorMode)
    assert all(n.meta["val"].fake_mode is normalized.fake_mode for n in core.graph.nodes if n.op != "output")


_LIBRARY.define("bump_and_sum(Tensor(a!) x) -> (Tensor(a!), Tensor)")


def _bump_and_sum(x: Tensor) -> tuple[Tensor, Tensor]:
    x.add_(1)
    return x, x.sum()


_LIBRARY.impl("bump_and_sum", _bump_and_sum, "CompositeExplicitAutograd")
torch.library.register_fake("export_test::bump_and_sum", lambda x: (x, x.new_empty(())), lib=_LIBRARY)


@pytest.mark.parametrize("passes", ["functionalize", "functionalize,lower,eliminate-clones"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.nonzero(),
        lambda x: torch.unique(x) + 1,
        lambda x: x.masked_select(x > 1).sum(),
        lambda x: x + x[0].item(),
        lambda x: x.zero_().nonzero(),
    ],
)
def test_sizes_and_numbers_that_depend_on_elements(program, passes: str):
    x = torch.tensor([3.0, 0.0, 2.0, 0.0, 2.0])
    module = ir.run_passes(ir.import_callable(program, x.clone()), passes)
    graph_module = ir.export_fx(module)
    for values in (x, x + 1, torch.zeros(5)):
        mine, theirs = values.clone(), values.clone()
        torch.testing.assert_close(graph_module(mine), program(theirs), rtol=0, atol=0)
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("passes", ["", "functionalize"])
def test_operator_that_returns_its_operand_beside_a_new_tensor(passes: str):
    gm = exported(lambda x: torch.ops.export_test.bump_and_sum(x), torch.ones(3), passes=passes)
    x = torch.zeros(3)
    same, total = gm(x)
    assert x.tolist() == [1, 1, 1]
    assert same.data_ptr() == x.data_ptr()
    assert total.item() == 3


def test_arguments_called_self():
    graph = fx.Graph()
    x = graph.placeholder("x")
    total = graph.create_node("call_function", torch.ops.aten.add_.Tensor, (x, 1), name="self_1")
    graph.output((graph.create_node("call_function", torch.ops.aten.mul.Tensor, (total, 2), name="self_2"), total))
    inputs = (torch.ones(2),)
    module = ir.run_passes(ir.import_fx(fx.GraphModule(nn.Module(), graph), inputs), "functionalize")
    mode = FakeTensorMode()
    split = export_split(module, [mode.from_tensor(inputs[0])], mode)
    assert split.epilogue is not None
    doubled, same = split.epilogue(*inputs, *split.core(*inputs))
    assert (doubled.tolist(), same is inputs[0], inputs[0].tolist()) == ([4, 4], True, [2, 2])
