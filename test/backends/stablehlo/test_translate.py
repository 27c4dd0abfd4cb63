"""xDSL modules as modules of jaxlib."""

import re

import pytest
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.stablehlo.translate import parse_text, to_jaxlib
from vllm_ir.tools.text import parse, text_context

CONSTANTS = [
    *(f"tensor<3x{kind}>" for kind in ("i8", "i32", "i64", "ui8", "f16", "bf16", "f32", "f64", "f8E4M3FN")),
    *(f"tensor<100x{kind}>" for kind in ("i8", "i32", "i64", "ui8", "f16", "bf16", "f32", "f64", "f8E4M3FN")),
]


def with_constant(kind: str, values: str) -> str:
    return (
        f"func.func public @main() -> {kind} {{ %c = stablehlo.constant dense<{values}> : {kind}\n"
        f" func.return %c : {kind} }}"
    )


@pytest.mark.parametrize("kind", CONSTANTS)
@pytest.mark.parametrize("same", [True, False], ids=["splat", "elements"])
def test_constants_keep_their_elements(kind, same):
    count = int(re.findall(r"\d+", kind)[0])
    point = ".0" if "xf" in kind or "xb" in kind else ""
    values = f"3{point}" if same else "[" + ", ".join(f"{i % 8}{point}" for i in range(count)) + "]"
    text = with_constant(kind, values)
    assert str(to_jaxlib(parse(text))) == str(parse_text(text))


@pytest.mark.parametrize("values", ["(2.0,-1.0)", "[" + ", ".join(f"({i}.0,0.5)" for i in range(3)) + "]"])
def test_complex_numbers_keep_their_elements(values):
    text = with_constant("tensor<3xcomplex<f32>>", values)
    assert str(to_jaxlib(parse(text))) == str(parse_text(text))


@pytest.mark.parametrize("count", [3, 100])
def test_booleans_keep_their_elements(count):
    values = ", ".join("true" if i % 3 else "false" for i in range(count))
    text = with_constant(f"tensor<{count}xi1>", f"[{values}]")
    assert str(to_jaxlib(parse(text))) == str(parse_text(text))


def test_nested_regions_and_locations():
    text = """
    func.func public @main(%x: tensor<4x8xf32>, %p: tensor<i1>) -> (tensor<4xf32>, tensor<4x8xf32>) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r = "stablehlo.reduce"(%x, %zero) <{dimensions = array<i64: 1>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %m = stablehlo.maximum %a, %b : tensor<f32>
        "stablehlo.return"(%m) : (tensor<f32>) -> ()
      }) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
      %s = "stablehlo.if"(%p) ({
        %n = stablehlo.negate %x : tensor<4x8xf32> loc("named"("model.py":12:3))
        "stablehlo.return"(%n) : (tensor<4x8xf32>) -> ()
      }, {
        "stablehlo.return"(%x) : (tensor<4x8xf32>) -> ()
      }) : (tensor<i1>) -> tensor<4x8xf32>
      func.return %r, %s : tensor<4xf32>, tensor<4x8xf32>
    }"""
    made = to_jaxlib(parse(text))
    assert str(made) == str(parse_text(text))
    assert 'loc("named"("model.py":12:3))' in made.operation.get_asm(enable_debug_info=True, use_local_scope=True)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ('%y = "stablehlo.nothing"(%x) : (tensor<4xf32>) -> tensor<4xf32>', "stablehlo.nothing"),
        (
            '%y = "stablehlo.broadcast_in_dim"(%x) {broadcast_dimensions = array<i64: 7>} '
            ": (tensor<4xf32>) -> tensor<4xf32>",
            "jaxlib finds the module invalid: .*model.py.*:7:9.*broadcast_dim",
        ),
    ],
)
def test_what_jaxlib_refuses_is_one_line(operation, message):
    text = (
        f'func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{ {operation} loc("model.py":7:9)\n'
        " func.return %y : tensor<4xf32> }"
    )
    from vllm_ir.tools.text import TextParser

    module = TextParser(text_context(allow_unregistered=True), text, "<text>").parse_text()
    with pytest.raises(VerifyException, match=message) as caught:
        to_jaxlib(module)
    assert "\n" not in str(caught.value)
