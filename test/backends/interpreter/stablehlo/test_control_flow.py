"""Branches, loops and calls, against XLA; and what errors say."""

import numpy as np
import pytest
from xdsl.utils.exceptions import InterpretationError

I = "tensor<i32>"  # noqa: E741  # a type


def judge(both, body: str, kinds: list[str], results: list[str], returned: list[str], *values: object) -> list[object]:
    """The results of XLA and the evaluator, which are the same."""
    text = body if body.lstrip().startswith("func.func") else both.function(kinds, results, body, returned)
    ours, theirs = both.judged(
        text, [np.array(value, both.NAMES[kind[7:-1]]) for kind, value in zip(kinds, values, strict=True)]
    )
    for one, other in zip(ours, theirs, strict=True):
        both.same("result", one, other)
    return [one.tolist() for one in ours]


@pytest.mark.parametrize(("pred", "expected"), [(True, [8, 3]), (False, [2, 3])])
def test_if(pred: bool, expected: list[int], both, xla) -> None:
    """Branches see the values outside."""
    body = f"""  %r:2 = "stablehlo.if"(%a0) ({{
    %s = stablehlo.add %a1, %a2 : {I}
    "stablehlo.return"(%s, %a2) : ({I}, {I}) -> ()
  }}, {{
    %d = stablehlo.subtract %a1, %a2 : {I}
    "stablehlo.return"(%d, %a2) : ({I}, {I}) -> ()
  }}) : (tensor<i1>) -> ({I}, {I})"""
    assert judge(both, body, ["tensor<i1>", I, I], [I, I], ["%r#0", "%r#1"], pred, 5, 3) == expected


@pytest.mark.parametrize(("number", "expected"), [(0, 10), (1, 20), (2, 30), (3, 30), (-1, 30)])
def test_case(number: int, expected: int, both, xla) -> None:
    """A number that has no branch takes the last one."""
    branches = ", ".join(
        f"""{{
    %b = stablehlo.constant dense<{value}> : {I}
    "stablehlo.return"(%b) : ({I}) -> ()
  }}"""
        for value in (10, 20, 30)
    )
    body = f'  %r = "stablehlo.case"(%a0) ({branches}) : ({I}) -> {I}'
    assert judge(both, body, [I], [I], ["%r"], number) == [expected]


@pytest.mark.parametrize(("limit", "expected"), [(0, [0, 1]), (1, [1, 2]), (5, [5, 32])])
def test_while(limit: int, expected: list[int], both, xla) -> None:
    """Regions have arguments of their own; the same block runs again and again."""
    body = f"""  %zero = stablehlo.constant dense<0> : {I}
  %one = stablehlo.constant dense<1> : {I}
  %r:2 = "stablehlo.while"(%zero, %one) ({{
  ^bb0(%i: {I}, %x: {I}):
    %less = stablehlo.compare LT, %i, %a0 : ({I}, {I}) -> tensor<i1>
    "stablehlo.return"(%less) : (tensor<i1>) -> ()
  }}, {{
  ^bb0(%i: {I}, %x: {I}):
    %next = stablehlo.add %i, %one : {I}
    %twice = stablehlo.add %x, %x : {I}
    "stablehlo.return"(%next, %twice) : ({I}, {I}) -> ()
  }}) : ({I}, {I}) -> ({I}, {I})"""
    assert judge(both, body, [I], [I, I], ["%r#0", "%r#1"], limit) == expected


def test_loops_exchange_their_values_at_once(both, xla) -> None:
    body = f"""  %r:3 = "stablehlo.while"(%a0, %a1, %a2) ({{
  ^bb0(%n: {I}, %x: {I}, %y: {I}):
    %zero = stablehlo.constant dense<0> : {I}
    %more = stablehlo.compare GT, %n, %zero : ({I}, {I}) -> tensor<i1>
    "stablehlo.return"(%more) : (tensor<i1>) -> ()
  }}, {{
  ^bb0(%n: {I}, %x: {I}, %y: {I}):
    %one = stablehlo.constant dense<1> : {I}
    %less = stablehlo.subtract %n, %one : {I}
    %sum = stablehlo.add %x, %y : {I}
    "stablehlo.return"(%less, %y, %sum) : ({I}, {I}, {I}) -> ()
  }}) : ({I}, {I}, {I}) -> ({I}, {I}, {I})"""
    assert judge(both, body, [I, I, I], [I, I], ["%r#1", "%r#2"], 10, 0, 1) == [55, 89]


def test_calls(both, xla) -> None:
    """A function that is called twice, and calls another one, has values of its own each time."""
    text = f"""func.func private @double(%x: {I}) -> {I} {{
  %y = stablehlo.add %x, %x : {I}
  func.return %y : {I}
}}
func.func public @main(%a: {I}) -> ({I}, {I}) {{
  %0 = func.call @other(%a) : ({I}) -> {I}
  %1 = func.call @double(%0) : ({I}) -> {I}
  func.return %0, %1 : {I}, {I}
}}
func.func private @other(%x: {I}) -> {I} {{
  %y = func.call @double(%x) : ({I}) -> {I}
  %z = func.call @double(%y) : ({I}) -> {I}
  func.return %z : {I}
}}"""
    assert judge(both, text, [I], [I, I], [], 3) == [12, 24]


def test_functions_that_call_themselves(both) -> None:
    """Each call has values of its own. XLA does not compile such programs."""
    text = f"""func.func public @main(%n: {I}) -> {I} {{
  %one = stablehlo.constant dense<1> : {I}
  %done = stablehlo.compare LE, %n, %one : ({I}, {I}) -> tensor<i1>
  %r = "stablehlo.if"(%done) ({{
    "stablehlo.return"(%one) : ({I}) -> ()
  }}, {{
    %less = stablehlo.subtract %n, %one : {I}
    %rest = func.call @main(%less) : ({I}) -> {I}
    %all = stablehlo.multiply %n, %rest : {I}
    "stablehlo.return"(%all) : ({I}) -> ()
  }}) : (tensor<i1>) -> {I}
  func.return %r : {I}
}}"""
    assert both.run(text, [np.array(5, np.int32)])[0] == 120


def test_errors(both) -> None:
    unknown = 'func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n  %r = "stablehlo.custom_call"(%a) '
    unknown += '<{call_target_name = "Sharding", has_side_effect = false, api_version = 1 : i32, '
    unknown += "output_operand_aliases = []}> : (tensor<2xf32>) -> tensor<2xf32>\n  func.return %r : tensor<2xf32>\n}"
    with pytest.raises(InterpretationError, match=r"stablehlo.custom_call: @Sharding is code outside of the module"):
        both.run(unknown, [np.zeros(2, np.float32)])
    simple = both.function(["tensor<2xf32>"], ["tensor<2xf32>"], "", ["%a0"])
    with pytest.raises(InterpretationError, match="@main takes 1 arguments, 2 were given"):
        both.run(simple, [np.zeros(2, np.float32)] * 2)
    with pytest.raises(InterpretationError, match=r"argument 0 of type tensor<2xf32> is float32\[3\]"):
        both.run(simple, [np.zeros(3, np.float32)])
    with pytest.raises(InterpretationError, match=r"argument 0 of type tensor<2xf32> is float64\[2\]"):
        both.run(simple, [np.zeros(2)])
    narrow = both.function(["tensor<2xi4>"], ["tensor<2xi4>"], "", ["%a0"])
    with pytest.raises(InterpretationError, match="elements of type i4 cannot be evaluated"):
        both.run(narrow, [np.zeros(2, np.int8)])
    token = "func.func public @main() {\n  %t = stablehlo.after_all : !stablehlo.token\n  func.return\n}"
    with pytest.raises(InterpretationError, match=r"stablehlo.after_all: .*does not know"):
        both.run(token, [])
