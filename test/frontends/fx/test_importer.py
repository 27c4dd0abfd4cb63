"""Imported modules: what is a buffer, what the signature says, and what is refused."""

import operator

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

import vllm_ir as ir
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import ALIASES, MUTATED, RESOURCE, STORAGE, SYMBOL, WINDOW, FuncOp
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.checks import check_module
from vllm_ir.frontends.fx.errors import FxImportError


def main_of(module: ModuleOp) -> FuncOp:
    return next(op for op in module.body.block.ops if isinstance(op, FuncOp) and op.sym_name.data == "main")


def attributes(module: ModuleOp, name: str) -> list[str | None]:
    main = main_of(module)
    found = [main.argument_attributes(index).get(name) for index in range(len(main.block.args))]
    return [None if value is None else str(value) for value in found]


def targets(module: ModuleOp) -> list[str]:
    return [op.target for op in module.walk() if isinstance(op, CallOp | ViewOp)]


def from_dynamo(fn, *inputs, dynamic=False) -> ModuleOp:
    modules: list[ModuleOp] = []

    def backend(gm, example_inputs):
        modules.append(ir.import_fx(gm, example_inputs))
        return gm.forward

    torch.compile(fn, backend=backend, fullgraph=True, dynamic=dynamic)(*inputs)
    return modules[0]


# What is a buffer


def test_program_without_effects_is_pure():
    module = ir.import_callable(lambda x, y: (x.t() @ y).view(-1) + 1, torch.ones(3, 4), torch.ones(3, 2))
    main = main_of(module)
    assert not any(isinstance(value.type, BufferType) for op in main.block.ops for value in (*op.operands, *op.results))


def test_written_argument_is_a_mutated_buffer():
    module = ir.import_callable(lambda x, y: x.add_(y) * 2, torch.ones(3), torch.ones(3))
    assert attributes(module, MUTATED) == ["unit", None]
    assert isinstance(main_of(module).block.args[0].type, BufferType)
    assert not isinstance(main_of(module).block.args[1].type, BufferType)


def test_returned_argument_is_a_buffer_but_not_mutated():
    module = ir.import_callable(lambda x: (x, x.view(-1)), torch.ones(2, 3))
    assert attributes(module, MUTATED) == [None]
    results = main_of(module).res_attrs
    assert results is not None
    assert [ALIASES in entry.data for entry in results.data] == [True, True]


def test_written_intermediate_is_allocated():
    def program(x):
        t = x * 2
        t[0].add_(1)
        return t

    module = ir.import_callable(program, torch.ones(2, 3))
    assert sum(isinstance(op, AllocOp) for op in module.walk()) == 1
    assert main_of(module).res_attrs is None


def test_two_results_in_one_storage_are_buffers():
    def program(x):
        t = x * 2
        return t, t[0]

    module = ir.import_callable(program, torch.ones(2, 3))
    assert all(isinstance(kind, BufferType) for kind in main_of(module).function_type.outputs)


def test_reshape_is_a_view_only_where_it_is_one():
    def program(x):
        x.reshape(6).zero_()
        y = x.t().reshape(6)
        y.zero_()
        return y

    module = ir.import_callable(program, torch.ones(2, 3))
    views = [op for op in module.walk() if isinstance(op, ViewOp)]
    roots = [op.base.name_hint for op in views if op.target in ("aten.view.default", "aten._unsafe_view.default")]
    assert "x" in roots
    assert sum(isinstance(op, AllocOp) for op in module.walk()) == 1


# The signature


def test_attributes_become_resources():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            self.count.add_(1)
            return self.layer(x) + self.count

    module = ir.import_callable(Model(), torch.ones(2))
    names = [name for name in attributes(module, RESOURCE) if name is not None]
    assert sorted(names) == ['"count"', '"layer.bias"', '"layer.weight"']
    mutated = dict(zip(attributes(module, RESOURCE), attributes(module, MUTATED), strict=True))
    assert mutated['"count"'] == "unit"
    assert mutated['"layer.weight"'] is None


def test_overlapping_arguments_share_a_storage_number():
    base = torch.zeros(6)
    gm = make_fx(lambda a, b, c: a.add_(b.sum() + c.sum()))(torch.ones(3), torch.ones(3), torch.ones(3))
    module = ir.import_fx(gm, [base[:3], base[2:5], base[3:]])
    # The third argument is disjoint from the first, but not from the second, which is only read.
    assert attributes(module, STORAGE)[0] is not None


def test_disjoint_arguments_of_one_allocation_do_not():
    base = torch.zeros(2, 3)

    def program(a, b):
        a.add_(1)
        b.mul_(2)
        return a + b

    gm = make_fx(program)(torch.ones(3), torch.ones(3))
    module = ir.import_fx(gm, [base[0], base[1]])
    assert attributes(module, STORAGE) == [None, None]
    assert attributes(module, MUTATED) == ["unit", "unit"]


def test_symbols_are_named_and_computed_with_arith():
    module = from_dynamo(lambda x: x.view(x.shape[0] * x.shape[1]) + (x.shape[0] + 3), torch.ones(4, 5), dynamic=True)
    symbols = [name for name in attributes(module, SYMBOL) if name is not None]
    assert len(symbols) == 2
    names = [op.name for op in module.walk()]
    assert "arith.muli" in names
    assert "arith.addi" in names
    assert "?" in str(module)


def test_changed_window_of_an_input_is_in_the_signature():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_method("t_", (x,))
    graph.output((graph.call_function(torch.mul, (x, 2)),))
    module = ir.import_fx(fx.GraphModule(nn.Module(), graph), [torch.ones(2, 3)])
    [window] = attributes(module, WINDOW)
    assert window is not None
    assert "3x2xf32" in window


def test_none_lists_and_nested_outputs():
    def program(x):
        return {"a": x * 2, "b": [None, 5, 2.5, (x + 1, True)]}, None, "label"

    gm = fx.symbolic_trace(program)
    exported = ir.export_fx(ir.parse(str(ir.import_fx(gm, [torch.ones(2)]))))
    out = exported(torch.ones(2))
    assert out[0]["b"][:3] == [None, 5, 2.5]
    assert out[0]["b"][3][1] is True
    assert out[1:] == (None, "label")
    assert torch.equal(out[0]["a"], torch.full((2,), 2.0))


# Calls


def test_arguments_are_bound_to_the_schema():
    gm = make_fx(lambda x: torch.ops.aten.slice.Tensor(x, 0, 1) * 2)(torch.ones(4))
    call = next(op for op in ir.import_fx(gm, [torch.ones(4)]).walk() if isinstance(op, CallOp))
    assert len(call.args.data) == 5


def test_methods_setitem_and_iadd_become_overloads():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    total = graph.call_function(operator.iadd, (x, y))
    graph.call_function(operator.setitem, (graph.call_method("view", (total, -1)), 0, 9.0))
    graph.output((graph.call_method("mul_", (x, 2.0)),))
    module = ir.import_fx(fx.GraphModule(nn.Module(), graph), [torch.ones(2, 2), torch.ones(2, 2)])
    assert {"aten.add_.Tensor", "aten.view.default", "aten.mul_.Tensor"} <= set(targets(module))


def test_registered_ops_are_operations_of_the_dialect():
    module = ir.import_callable(lambda x, w: ir.ops.rms_norm(x, w, 1e-5), torch.ones(2, 4), torch.ones(4))
    assert "vllm_ir.rms_norm" in [op.name for op in module.walk()]


def test_donated_activations_are_buffers_and_marked():
    def program(x, r, w):
        return ir.ops.fused_add_rms_norm.maybe_inplace(x, r, w, 1e-5)

    module = ir.import_callable(program, torch.ones(2, 4), torch.ones(2, 4), torch.ones(4))
    assert "donated = array<i64: 0, 1>" in str(module)
    assert attributes(module, MUTATED) == ["unit", "unit", None]


def test_branches_are_functions():
    def program(p, x):
        return torch.cond(p.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))

    module = from_dynamo(program, torch.ones(2), torch.ones(3))
    assert len([op for op in module.body.block.ops if isinstance(op, FuncOp)]) == 3
    assert "higher_order.cond" in targets(module)


def test_random_and_asserting_calls_are_marked():
    def program(x):
        torch._assert_async(x.sum() > 0)
        return torch.rand(3) + x.bernoulli()

    module = ir.import_callable(program, torch.ones(3))
    marks = {
        op.target: (op.random is not None, op.external is not None) for op in module.walk() if isinstance(op, CallOp)
    }
    assert marks["aten.rand.default"] == (True, False)
    assert marks["aten._assert_async.default"] == (False, True)


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        (torch.bool, "i1"),
        (torch.int8, "i8"),
        (torch.uint8, "ui8"),
        (torch.int16, "i16"),
        (torch.uint16, "ui16"),
        (torch.int32, "i32"),
        (torch.uint32, "ui32"),
        (torch.int64, "i64"),
        (torch.uint64, "ui64"),
        (torch.float16, "f16"),
        (torch.bfloat16, "bf16"),
        (torch.float32, "f32"),
        (torch.float64, "f64"),
        (torch.float8_e4m3fn, "f8E4M3FN"),
        (torch.float8_e5m2, "f8E5M2"),
        (torch.float8_e4m3fnuz, "f8E4M3FNUZ"),
        (torch.float8_e5m2fnuz, "f8E5M2FNUZ"),
        (torch.float8_e8m0fnu, "f8E8M0FNU"),
        (torch.complex64, "complex<f32>"),
        (torch.complex128, "complex<f64>"),
    ],
    ids=str,
)
def test_dtypes(dtype: torch.dtype, text: str):
    module = ir.import_callable(lambda x: x[1:].clone(), torch.zeros(4, 2).to(dtype))
    assert f"tensor<3x2x{text}>" in str(module)
    assert str(ir.parse(str(module))) == str(module)


# What is refused


def test_unsupported_dtype_names_the_line():
    def program(x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)

    with pytest.raises(FxImportError, match=r"test_importer\.py:\d+\): dtype torch\.qint8 is not supported"):
        ir.import_callable(program, torch.ones(2))


def test_resize_names_the_operator():
    def program(x):
        t = x * 2
        t.resize_(7)
        return t

    with pytest.raises(FxImportError, match=r"test_importer\.py:\d+.*resize_.*allocate a new tensor"):
        ir.import_callable(program, torch.ones(2))


def test_integer_plus_float_in_place_is_refused():
    with pytest.raises(FxImportError):
        ir.import_callable(lambda x: x.add_(1.5), torch.ones(2, dtype=torch.int64))


def test_branch_that_writes_its_operand_is_refused():
    true_graph, false_graph = (make_fx(f)(torch.ones(3)) for f in (lambda a: a.add_(1) * 2, lambda a: a - 1))
    root = nn.Module()
    root.add_module("true_graph", true_graph)
    root.add_module("false_graph", false_graph)
    graph = fx.Graph()
    p, x = graph.placeholder("p"), graph.placeholder("x")
    branches = [graph.get_attr("true_graph"), graph.get_attr("false_graph")]
    graph.output((graph.call_function(torch.ops.higher_order.cond, (p, *branches, (x,))),))
    with pytest.raises((FxImportError, RuntimeError)):
        ir.import_fx(fx.GraphModule(root, graph), [torch.tensor(True), torch.ones(3)])


# Stated effects


def with_call(call: str, result: str) -> ModuleOp:
    return ir.parse(
        "vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) -> tensor<4xf32> {\n"
        f"  {call}\n  vllm_ir.return {result} : tensor<4xf32>\n}}"
    )


def test_text_with_the_schemas_effects_is_accepted():
    buffer = "!vllm_ir.buffer<4xf32>"
    check_module(
        with_call(
            "%z = torch.call @aten.add_.Tensor(%x, 1, alpha = 1) reads(%x) writes(%x) returns [0] : "
            f"({buffer}) -> {buffer}\n"
            f"%y = torch.call @aten.mul.Tensor(%z, 2) reads(%z) : ({buffer}) -> tensor<4xf32>",
            "%y",
        )
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("%y = torch.call @aten.mul.Tensor(%x, 2) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>", "reads operands"),
        (
            "%y = torch.call @aten.mul.Tensor(%x, 2) reads(%x) writes(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>",
            "states",
        ),
        ("%y = torch.call @aten.rand.default([4]) : () -> tensor<4xf32>", "arguments"),
        (
            "%y = torch.call @aten.no_such_op.default(%x) reads(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>",
            "not registered",
        ),
    ],
)
def test_text_with_other_effects_is_refused(call: str, message: str):
    with pytest.raises(VerifyException, match=message):
        check_module(with_call(call, "%y"))


def test_locations_name_file_and_line():
    module = ir.import_callable(lambda x: x.relu() + 1, torch.ones(2))
    [relu] = [op for op in module.walk() if isinstance(op, CallOp) and op.target == "aten.relu.default"]
    assert "test_importer.py" in str(relu.location)


def test_call_of_a_registered_op_is_located_in_the_program():
    module = ir.import_callable(lambda x: ir.ops.rms_norm(x, None, 1e-5), torch.ones(2, 4))
    [norm] = [op for op in module.walk() if op.name == "vllm_ir.rms_norm"]
    assert "test_importer.py" in str(norm.location)
