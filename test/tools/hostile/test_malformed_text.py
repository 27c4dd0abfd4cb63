"""Text that is malformed, cut off, nested, or too large in some way: one line, with the place."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.utils.exceptions import ParseError, VerifyException

from vllm_ir.tools.fuzz_text.corpus import lit_texts
from vllm_ir.tools.fuzz_text.mutations import tokens
from vllm_ir.tools.text import parse

ROOT = Path(__file__).parents[2]
FUNCTION = """\
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  {}
  vllm_ir.return %x : tensor<4xf32>
}}
"""
VIEW = "vllm_ir.view @aten.select.int(%{}, 0, 0) : (!vllm_ir.buffer<4x4xf32>) -> !vllm_ir.buffer<4x4xf32>"


def _error(text: str) -> ParseError | VerifyException | None:
    try:
        parse(text, "input.mlir")
    except (ParseError, VerifyException) as error:
        return error
    return None


def _truncations(step: int) -> None:
    texts = sorted(set(lit_texts(ROOT)))
    assert len(texts) > 100
    count = 0
    for number, text in enumerate(texts):
        words = tokens(text)
        for end in range(number % step, len(words), step):
            count += 1
            error = _error("".join(words[:end]))
            if isinstance(error, ParseError):
                assert str(error.span.get_location()).startswith("input.mlir:")
            elif error is not None:
                assert "\n" not in str(error)
                assert str(error).startswith("input.mlir:")
    assert count > 1000


def test_texts_cut_off_at_some_tokens():
    _truncations(29)


@pytest.mark.slow
def test_texts_cut_off_at_every_token():
    _truncations(1)


@pytest.mark.parametrize("depth", [101, 100_000])
@pytest.mark.parametrize(
    ("opening", "inner", "closing"),
    [
        ("vllm_ir.return (", "1", ")"),
        ('"test.op"() {a = tuple<', "i1", ">} : () -> ()"),
        ('"test.op"() {a = [', "", "]} : () -> ()"),
        ('"test.op"() {a = {b = ', "1", "}} : () -> ()"),
        ('"test.op"() ({\n', "", "}) : () -> ()\n"),
        ("builtin.module {\n", "", "}\n"),
        ('"test.op"() : () -> () loc("a"(', "unknown", "))"),
        ('"test.op"() {a = () -> (', "i1", ")} : () -> ()"),
        ('"test.op"() {a = #torch.tuple<[', "", "]>} : () -> ()"),
        ("(", "", ""),
        ("", "", ")"),
    ],
)
def test_deep_nesting(refused, depth: int, opening: str, inner: str, closing: str):
    bracket = max((opening.rfind(character), character) for character in "([{<")[1] if opening else ")"
    start = opening[: opening.rfind(bracket)] if opening else ""
    repeated = opening[opening.rfind(bracket) :] if opening else ""
    line = refused(start + repeated * depth + inner + closing[:1] * depth + closing[1:])
    assert "nests more than 100 brackets deep" in line or not opening


def test_nesting_that_is_allowed_is_printed_and_read_in_both_syntaxes(accepted):
    for depth in (1, 20, 45):
        text = f"vllm_ir.func @main() {{\n  vllm_ir.return {'(' * depth}{')' * depth}\n}}"
        for options in ([], ["--print-op-generic"]):
            printed = accepted(text, *options)
            assert accepted(printed, *options) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"test.op"() {a = tensor<' + "1x" * 100_000 + "f32>} : () -> ()", "a word of 200003 characters"),
        ("a" * 20_000, "a word of 20000 characters"),
        ("#a = [1]\n" + "".join(f"#a{'x' * i}x = [#a{'x' * i}]\n" for i in range(60)), "nests more than 50 levels"),
        ("#a = 1\n" + "".join(f"#a{'x' * i}x = [#a{'x' * i}, #a{'x' * i}]\n" for i in range(20)), "holds 12287 others"),
        ("!a = i1\n" + "".join(f"!a{'x' * i}x = tuple<!a{'x' * i}>\n" for i in range(60)), "nests more than 50 levels"),
        ('"unterminated', "\"'"),
        ("\0", "Unexpected character"),
        ("%", "Expected suffix identifier"),
    ],
    ids=range(8),
)
def test_texts_that_would_take_for_ever(refused, text: str, message: str):
    refused(text)
    if "'" not in message:
        assert message in refused(text)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('"no.such"() : () -> ()', "Operation no.such is not registered"),
        ('"vllm_ir.no_such"() : () -> ()', "Operation vllm_ir.no_such is not registered"),
        ('"test.op"() {a = #nope.attr} : () -> ()', "nope.attr"),
        ('"test.op"() : () -> !nope.type', "nope.type"),
        ('"test.op"() {a = #vllm_ir.nope} : () -> ()', "vllm_ir.nope"),
        ("%y = torch.call @aten.neg.default(%nope) : (tensor<4xf32>) -> tensor<4xf32>", "nope"),
        ("%y = torch.call @aten.neg.default(%x) : (tensor<5xf32>) -> tensor<5xf32>", "tensor<4xf32>"),
        ("%y = torch.call @aten.neg.default(%x) : () -> tensor<5xf32>", "expected 0"),
        ('"torch.call"(%x) : (tensor<4xf32>) -> ()', "callee"),
        ('"torch.call"(%x) <{callee = "a", args = [1]}> : (tensor<4xf32>) -> ()', "symbol_ref"),
        ('"torch.call"(%x) <{callee = @a, args = [#torch.operand<7>]}> : (tensor<4xf32>) -> ()', "operand 7 of 1"),
        ('"torch.constant"() <{data = 3 : i64}> : () -> tensor<1xui8>', "string"),
        ('"vllm_ir.view"() <{callee = @aten.t.default, args = []}> : () -> ()', "the first argument of a view is None"),
        ("%z = torch.call @aten.neg.default(%z) : (tensor<4xf32>) -> tensor<4xf32>", "uses %z before it is defined"),
        (
            "%a = torch.call @aten.neg.default(%b) : (tensor<4xf32>) -> tensor<4xf32>\n"
            "  %b = torch.call @aten.neg.default(%a) : (tensor<4xf32>) -> tensor<4xf32>",
            "uses %b before it is defined",
        ),
        (
            '%w = "test.op"() : () -> !vllm_ir.buffer<4x4xf32>\n  %v = ' + VIEW.format("v"),
            "uses %v before it is defined",
        ),
        ('"test.op"() ({\n  }) : () -> ()', "test.op has a region"),
        ("vllm_ir.func @inner() {\n  vllm_ir.return none\n  }", "vllm_ir.func has a region"),
        ("vllm_ir.return %x : tensor<4xf32>", "vllm_ir.return"),
        ("%t = stablehlo.transpose %x, dims = [18446744073709551615] : (tensor<4xf32>) -> tensor<4xf32>", "malformed"),
        ("stablehlo.constant i1", "malformed text (AttributeError"),
    ],
)
def test_wrong_operations(refused, body: str, message: str):
    assert message in refused(FUNCTION.format(body))


def test_a_value_of_another_function(refused):
    body = '%y = "test.op"() : () -> tensor<4xf32>'
    other = FUNCTION.replace("@main", "@other").format('"test.op"(%y) : (tensor<4xf32>) -> ()').replace("{{", "{")
    line = refused(FUNCTION.format(body) + other)
    assert "%y" in line


@pytest.mark.parametrize("number", [2**63, 2**64, 2**200, -1, -(2**63) - 1])
@pytest.mark.parametrize(
    "text",
    [
        '"test.op"() : () -> !vllm_ir.buffer<{}xf32>',
        '"test.op"() : () -> !vllm_ir.buffer<4xf32, strides = [{}]>',
        '"test.op"() : () -> !vllm_ir.buffer<4xf32, offset = {}>',
        '"test.op"() : () -> !vllm_ir.buffer<?xf32, sizes = [{}]>',
        FUNCTION.replace("tensor<4xf32>", "tensor<{}xf32>").replace("{}\n", "\n", 1),
        FUNCTION.replace("tensor<4xf32>", "tensor<4xf32, #vllm_ir.layout<strides = [{}]>>").replace("{}\n", "\n", 1),
        "torch.call @ns.op() returns [{}] : () -> ()",
        "torch.call @ns.op() updates [{}] : () -> ()",
        '"torch.call"() <{{callee = @a, args = [#torch.operand<{}>]}}> : () -> ()',
    ],
)
def test_numbers_that_no_program_has(refused, text: str, number: int):
    if "returns" in text and number == -1:
        return  # a result that is no operand
    refused(text.replace("{{", "{").replace("}}", "}").replace("{}", str(number)))


@pytest.mark.parametrize("number", [2**64, 2**200, -(2**63) - 1])
def test_arguments_that_do_not_fit(refused, number: int):
    assert "does not fit in 64 bits" in refused(FUNCTION.format(f"torch.call @ns.op({number}) : () -> ()"))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1.0e+999"])
def test_large_floats_are_infinite_or_refused(number: str):
    try:
        text = str(parse(FUNCTION.format(f"torch.call @ns.op({number}) : () -> ()")))
    except ParseError:
        return
    assert "inf" in text
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    "kind",
    [
        f"!vllm_ir.buffer<{2**62}x{2**62}xf32>",
        f"!vllm_ir.buffer<4xf32, strides = [{2**62}]>",
        f"!vllm_ir.buffer<{2**61}xf64>",
    ],
)
def test_windows_larger_than_an_address_space(refused, kind: str):
    assert "more than 2**63" in refused(f'"test.op"() : () -> {kind}')


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("9**9**9**9", "a power that is not a number up to 64"),
        ("2**100000", "a power that is not a number up to 64"),
        ("().__class__", "is not an arithmetic expression"),
        ("s0 +", "is not an arithmetic expression"),
        ("(" * 60 + "s0" + ")" * 60 + "]", "is not an arithmetic expression"),
        ("-" * 9000 + "s0", "is not an arithmetic expression"),
        ("s0" + " + s0" * 1500, "nests more than 300 levels deep"),
        ("s" * 20_000, "more than 10000"),
        ("", "is not an arithmetic expression"),
        ("lambda: 1", "is not an arithmetic expression"),
        ("[s0 for s0 in s1]", "is not an arithmetic expression"),
        ("s0(a=1)", "is not an arithmetic expression"),
        ("s0.real", "is not an arithmetic expression"),
        ("1if s0else 2", "is not an arithmetic expression"),
    ],
)
def test_sizes_that_are_no_expressions(refused, size: str, message: str):
    assert message in refused(f'"test.op"() : () -> !vllm_ir.buffer<?xf32, sizes = ["{size}"]>')
    argument = FUNCTION.replace("%x: tensor<4xf32>", f'%x: tensor<4xf32>, %n: i64 {{{{vllm_ir.symbol = "{size}"}}}}')
    assert message in refused(argument.format(""))


def test_many_operations_are_read_checked_and_exported(accepted):
    lines = [f"%a{i + 1} = torch.call @aten.neg.default(%a{i}) : (tensor<4xf32>) -> tensor<4xf32>" for i in range(1500)]
    text = "vllm_ir.func @main(%a0: tensor<4xf32>) -> tensor<4xf32> {\n" + "\n".join(lines)
    code = accepted(text + "\nvllm_ir.return %a1500 : tensor<4xf32>\n}", "-t", "fx", "-p", "functionalize")
    assert code.count("aten.neg") == 1500


@pytest.mark.slow
def test_a_hundred_thousand_operations_are_read(accepted):
    lines = [f"%a{i + 1} = torch.call @ns.op(%a{i}) : (tensor<4xf32>) -> tensor<4xf32>" for i in range(100_000)]
    text = "vllm_ir.func @main(%a0: tensor<4xf32>) -> tensor<4xf32> {\n" + "\n".join(lines)
    printed = accepted(text + "\nvllm_ir.return %a100000 : tensor<4xf32>\n}")
    assert printed.count("@ns.op") == 100_000
