"""Names and strings of a text are data: neither the export nor the code that it makes executes them."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from xdsl.utils.exceptions import DiagnosticException, VerifyException

import vllm_ir as ir
from vllm_ir.tools.vllm_ir_opt import main

NAMES = [
    "x=vllm_ir_test_canary()",
    "x): vllm_ir_test_canary() #",
    "x\\n    vllm_ir_test_canary()\\n    y",
    "x\\0D    vllm_ir_test_canary()",
    "x\\22); vllm_ir_test_canary(); (\\22",
    "self",
    "lambda",
    "None",
    "torch",
    "getattr",
    "slice",
    "device",
    "inf",
    "__class__.__init__",
    "",
    "0",
    "a.b",
    "é",
]
TWO = """\
vllm_ir.func @main(%x: tensor<4xf32> loc("{name}"(unknown)), %y: tensor<4xf32>) -> tensor<4xf32> {{
  %a = torch.call @aten.add.Tensor(%x, %y, alpha = 1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {loc}
  %b = torch.call @aten.select.int(%a, 0, 1) : (tensor<4xf32>) -> tensor<f32>
  %c = torch.call @aten.div.Tensor(%a, %b) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> {loc}
  vllm_ir.return %c : tensor<4xf32>
}}
"""
BRANCHES = """\
vllm_ir.func @main(%x: tensor<3xf32>, %flag: tensor<i1>) -> tensor<3xf32> {{
  %r = torch.call @higher_order.cond(%flag, @"{name}", @other, (%x)) : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32>
  vllm_ir.return %r : tensor<3xf32>
}}
vllm_ir.func @"{name}"(%a: tensor<3xf32>) -> tensor<3xf32> {{
  %add = torch.call @aten.add.Tensor(%a, 1, alpha = 1) : (tensor<3xf32>) -> tensor<3xf32>
  vllm_ir.return (%add) : tensor<3xf32>
}}
vllm_ir.func @other(%a: tensor<3xf32>) -> tensor<3xf32> {{
  %sub = torch.call @aten.sub.Tensor(%a, 1, alpha = 1) : (tensor<3xf32>) -> tensor<3xf32>
  vllm_ir.return (%sub) : tensor<3xf32>
}}
"""
CALL = """\
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  {}
  vllm_ir.return %x : tensor<4xf32>
}}
"""


def _is_plain(code: str) -> bool:
    """Whether code calls nothing but operators of torch, and names nothing but its own variables."""
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return "vllm_ir_test_canary" not in names


@pytest.mark.parametrize("name", NAMES)
def test_names_of_arguments_values_and_files(canary, accepted, name: str):
    for place in (f'loc("{name}"("{name}":3:1))', f'loc("{name}":1:1)'):
        _check_names(accepted, TWO.format(name=name, loc=place))


def _check_names(accepted, text: str) -> None:
    graph = ir.export_fx(ir.parse(text))
    assert _is_plain(graph.code)
    x, y = torch.tensor([5.0, 2, -3, 4]), torch.tensor([1.0, 2, 3, 4])
    assert torch.equal(graph(x, y), (x + y) / (x + y)[1])
    code = accepted(text, "-t", "fx")
    assert _is_plain(code)
    scope: dict[str, object] = {"torch": torch, "device": torch.device}
    exec(compile(code, "graph", "exec"), scope)


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_names_of_functions(canary, name: str):
    graph = ir.export_fx(ir.parse(BRANCHES.format(name=name)))
    assert _is_plain(graph.code)
    x = torch.ones(3)
    assert torch.equal(graph(x, torch.tensor(True)), x + 1)
    assert torch.equal(graph(x, torch.tensor(False)), x - 1)


@pytest.mark.parametrize("name", ["forward", "graph", "code", "training", "_modules", "__class__", "__init__", "eval"])
def test_functions_that_are_named_like_attributes_of_modules(name: str):
    graph = ir.export_fx(ir.parse(BRANCHES.format(name=name)))
    assert torch.equal(graph(torch.ones(3), torch.tensor(True)), torch.full((3,), 2.0))


@pytest.mark.parametrize(
    "callee",
    [
        "os.system",
        "python.builtins.eval",
        "python.builtins.exec",
        "python.builtins.vllm_ir_test_canary",
        "python.os.system",
        "python.torch.load",
        "python._operator.methodcaller",
        "python._operator.call",
        "python.torch.fx.experimental.symbolic_shapes.sys.exit",
        "aten.__class__.mro",
        "aten.__init__.__globals__",
        "aten.add.__class__",
        "aten.add.Tensor.__class__",
        "load_library.__call__.x",
        "import_module.__call__.os",
        "__class__.__base__.__subclasses__",
        "higher_order.__class__",
        "higher_order.cond.__class__",
        "",
        ".",
        "..",
        "a",
        "aten.add",
        "aten..Tensor",
        "aten. add.Tensor",
    ],
)
@pytest.mark.parametrize("options", [("-t", "fx"), ("-p", "functionalize"), ("-p", "specialize"), ("-t", "stablehlo")])
def test_only_operators_are_called(canary, refused, callee: str, options: tuple[str, str]):
    text = CALL.format(f'%n = torch.call @"{callee}"("vllm_ir_test_canary()") : () -> i64')
    assert f"operator @{callee} is not registered" in refused(text, *options)
    text = CALL.format(f'%n = torch.call @higher_order.cond(@"{callee}", [%x]) : (tensor<4xf32>) -> tensor<4xf32>')
    refused(text, "-t", "fx")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ('dtype = #torch.device<"cpu">', "dtype is"),
        ('layout = #torch.layout<"load">', "'load' is not a layout of PyTorch"),
        ('layout = #torch.layout<"hub">', "'hub' is not a layout of PyTorch"),
        ('memory_format = #torch.memory_format<"__class__">', "'__class__' is not a memory format of PyTorch"),
        ('device = #torch.device<"cpu:vllm_ir_test_canary()">', "is not a device"),
        ('device = #torch.device<"">', "is not a device"),
        ("device = 3.0", "device is"),
        ('dtype = "float32"', "dtype is"),
        ('pin_memory = "yes"', "pin_memory is"),
        ("pin_memory = @aten.add.Tensor", "pin_memory is"),
        ("pin_memory = none, extra = none", "takes 6 arguments, 7 are given"),
        ("vllm_ir_test_canary = none", "takes the keywords"),
    ],
)
def test_arguments_of_the_wrong_kind(canary, refused, argument: str, message: str):
    name = argument.partition(" ")[0]
    keywords = ("dtype", "layout", "device", "pin_memory", "memory_format")
    given = [argument if name == keyword else f"{keyword} = none" for keyword in keywords]
    if name not in keywords:
        given[0] = argument
    text = CALL.format(
        f"%n = torch.call @aten.empty_like.default(%x, {', '.join(given)}) : (tensor<4xf32>) -> tensor<4xf32>"
    )
    assert message in refused(text, "-t", "fx")


@pytest.mark.parametrize("keyword", ["lambda", "from", "__class__", "x"])
def test_keywords_of_calls_without_a_schema(refused, keyword: str):
    refused(CALL.format(f"%n = torch.call @python._operator.add(1, {keyword} = 2) : () -> i64"), "-t", "fx")


@pytest.mark.parametrize(
    "size", ["().__class__.__base__", "vllm_ir_test_canary(1)", "__import__(1)", "s0.__class__", "exec(chr(49))"]
)
@pytest.mark.parametrize("passes", ["functionalize", "lower,eliminate-clones", 'specialize{sizes="s0=3"}'])
def test_sizes_are_not_evaluated(canary, tmp_path: Path, size: str, passes: str):
    kind = f'tensor<?xf32, #vllm_ir.layout<sizes = ["{size}"]>>'
    text = (
        f'vllm_ir.func @main(%x: {kind}, %n: i64 {{vllm_ir.symbol = "s0"}}) -> i64 {{\n'
        f"  %b = vllm_ir.rms_norm %x : {kind} {{epsilon = 1.0 : f64}} -> {kind}\n  vllm_ir.return %n : i64\n}}"
    )
    for action in (lambda module: ir.run_passes(module, passes), ir.export_fx):
        # Whether it is refused depends on whether anybody needs the number.
        with suppress(VerifyException, DiagnosticException, ValueError):
            action(ir.parse(text))


@pytest.mark.parametrize(
    "name", ["__class__.__init__", "forward", "weight.data", "a\\22); vllm_ir_test_canary((\\22", "", "..", "nope"]
)
def test_resources_are_tensors_of_the_module_that_is_given(canary, name: str):
    text = CALL.format("").replace("%x: tensor<4xf32>", f'%x: tensor<4xf32> {{vllm_ir.resource = "{name}"}}')
    module = ir.parse(text)
    with pytest.raises(VerifyException, match="`like` has no tensor attribute"):
        ir.export_fx(module, like=torch.nn.Linear(2, 2))
    assert _is_plain(ir.export_fx(module).code)


def test_python_files_run_only_when_they_are_asked_for(canary, refused, tmp_path: Path):
    path = tmp_path / "program.py"
    path.write_text("vllm_ir_test_canary('ran')\n")
    assert "does not say what to import" in refused(None, path, place=False)
    refused(None, path, "-f", "mlir", place=False)
    refused(None, path, "-f", "pt2", place=False)
    refused('"test.op"() {load = "' + str(path) + '"} : () -> ()', "-p", "nope", place=False)
    assert main(["--load", str(path), str(tmp_path / "nothing.mlir")]) == 1
    assert canary == [("ran",)]
    canary.clear()
