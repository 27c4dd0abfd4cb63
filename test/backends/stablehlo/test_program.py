"""Programs in each alias mode: what they state, what their serialised forms hold, and what XLA makes of them."""

import re

import pytest
import torch
from jaxlib import _hlo, _jax
from xdsl.utils.exceptions import VerifyException

from test.backends.stablehlo.programs import CACHE, SINGLE, program
from vllm_ir.backends.stablehlo.jaxlib_calls import stablehlo
from vllm_ir.backends.stablehlo.translate import context, parse_text

MODES = ("may", "must", "none")


def hlo_text(proto: bytes) -> str:
    """HLO text of a serialised HloModuleProto."""
    return _hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string()


@pytest.mark.parametrize("alias", MODES)
def test_each_mode_runs_with_the_aliasing_that_it_promises(alias):
    made = program(CACHE, alias)
    cache, row = torch.randn(64, 16), torch.randn(1, 16)
    before, pointer, total = cache.clone(), cache.data_ptr(), cache.sum()
    old, new = made.run(cache, row, torch.tensor(3, dtype=torch.int32))
    assert new is cache
    assert cache.data_ptr() == pointer
    before[3] = row
    assert torch.equal(cache, before)
    torch.testing.assert_close(old, total)
    optimized = made.optimized_hlo()
    stated = re.findall(r"input_output_alias=\{(.*?)\}, entry", optimized)
    assert stated == ([] if alias == "none" else [f" {{1}}: (0, {{}}, {alias}-alias) "])
    full_copies = re.findall(r"f32\[64,16\]\S* copy\(", optimized)
    assert len(full_copies) == (1 if alias == "none" else 0)


@pytest.mark.parametrize("text", [CACHE, SINGLE], ids=["two results", "one result"])
@pytest.mark.parametrize("alias", MODES)
def test_hlo_protos_have_a_tuple_root_and_the_alias(text, alias):
    text_of_proto = hlo_text(program(text, alias).to_hlo_proto())
    result = 1 if text is CACHE else 0
    assert ("input_output_alias" in text_of_proto) == (alias != "none")
    if alias != "none":
        assert f"{{{result}}}: (0, {{}}, {alias}-alias)" in text_of_proto
    layout = re.search(r"entry_computation_layout=\{\(.*?\)->(.)", text_of_proto)
    assert layout is not None
    assert layout[1] == "("


@pytest.mark.parametrize("alias", MODES)
def test_a_single_result_runs_in_each_mode(alias):
    x = torch.ones(4)
    made = program(SINGLE, alias)
    made.to_hlo_proto()  # must leave the program as it is
    (result,) = made.run(x)
    assert result is x
    assert x.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("version", [None, "4 weeks", "12 weeks", "1.0.0"])
@pytest.mark.parametrize("alias", MODES)
def test_portable_artifacts_are_read_back(version, alias):
    made = program(CACHE, alias)
    back = stablehlo().deserialize_portable_artifact(context(), made.to_portable_artifact(version))
    assert str(back) == made.text


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("99.0.0", r"version 99\.0\.0 cannot be written; this jaxlib writes 0\.9\.0 to \d+\.\d+\.\d+"),
        ("0.1.0", r"version 0\.1\.0 cannot be written"),
        ("3 weeks", r"version is '3 weeks', it takes three numbers \('1.13.7'\), '4 weeks' or '12 weeks'"),
        ("new", r"version is 'new', it takes"),
    ],
)
def test_versions_that_do_not_exist(version, message):
    with pytest.raises(ValueError, match=message):
        program(SINGLE).to_portable_artifact(version)


def test_text_is_read_by_jaxlib_and_has_no_attributes_of_ours():
    made = program(SINGLE.replace("-> tensor<4xf32> {", "-> tensor<4xf32> attributes {vllm_ir.n = 1 : i64} {"))
    assert str(parse_text(made.text)) == made.text
    assert "vllm_ir" not in made.text
    assert made.io_map == {0: 0}
    assert made.original_output_count == 1
    assert made.output_views == {}


def function(arguments: str, results: str, returned: str) -> str:
    return f"func.func public @main({arguments}) -> ({results}) {{ func.return {returned} : {results} }}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            function(
                "%x: tensor<4x8xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<8x4xf32>", "tensor<8x4xf32>", "%y"
            ),
            "argument 0 of shape 4x8 aliases result 0 of shape 8x4; they must be the same",
        ),
        (
            function("%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xi32>", "tensor<4xi32>", "%y"),
            "argument 0 of f32 aliases result 0 of i32; they must be the same",
        ),
        (
            function("%x: tensor<4xf32> {tf.aliasing_output = 1 : i32}", "tensor<4xf32>", "%x"),
            "argument 0 aliases result 1, the function has 1",
        ),
        (
            function("%x: tensor<4xf32> {tf.aliasing_output = -1 : i32}", "tensor<4xf32>", "%x"),
            "argument 0 aliases result -1, the function has 1",
        ),
        (
            function(
                "%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32> {tf.aliasing_output = 0 : i32}",
                "tensor<4xf32>",
                "%x",
            ),
            "arguments 0 and 1 both alias result 0",
        ),
        (
            function('%x: tensor<4xf32> {tf.aliasing_output = "0"}', "tensor<4xf32>", "%x"),
            'tf.aliasing_output of argument 0 is "0", it takes the number of a result',
        ),
        (
            function("%x: tensor<4xf32> {jax.buffer_donor = true}", "tensor<4xf32>", "%x"),
            "argument 0 has jax.buffer_donor: XLA would choose a result for it; state tf.aliasing_output instead",
        ),
        (
            'builtin.module attributes {mhlo.input_output_alias = [{alias = "nonsense"}]} {' + SINGLE + "}",
            "the module has the attribute mhlo.input_output_alias, which jaxlib reads unchecked",
        ),
        ("builtin.module {}", "the module has no func.func @main; run convert-to-stablehlo first"),
    ],
)
@pytest.mark.parametrize("alias", MODES)
def test_malformed_aliases_do_not_reach_jaxlib(text, message, alias):
    with pytest.raises(VerifyException, match=re.escape(message)):
        program(text, alias)


def test_unknown_modes_and_inputs_that_do_not_fit():
    with pytest.raises(ValueError, match="alias is 'maybe', it takes 'may', 'must', 'none'"):
        program(SINGLE, "maybe")  # pyright: ignore[reportArgumentType]  # the error is the subject
    made = program(SINGLE)
    with pytest.raises(ValueError, match="the program takes 1 inputs, 0 were given"):
        made.run()
    with pytest.raises(ValueError, match=r"input 0 \(0\) is torch.float32 \[5\] on cpu, it takes torch.float32 \[4\]"):
        made.run(torch.ones(5))
    with pytest.raises(ValueError, match=r"input 0 \(0\) is torch.int32 \[4\] on cpu"):
        made.run(torch.ones(4, dtype=torch.int32))


def scaled(constant: str, operation: str) -> str:
    """A program that takes a constant and an argument."""
    return SINGLE.replace(
        "%y = stablehlo.add %x, %x",
        f"%c = stablehlo.constant dense<{constant}> : tensor<f32>\n"
        "%b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
        f"%y = stablehlo.{operation} %x, %b",
    )


@pytest.mark.parametrize(("constant", "operation"), [("1.17549435E-38", "multiply"), ("1.0E-40", "add")])
def test_a_constant_that_the_cpu_client_would_flush_is_refused(constant, operation):
    made = program(scaled(constant, operation))
    with pytest.raises(VerifyException, match="XLA's CPU client sets subnormal numbers to zero"):
        made.run(torch.ones(4))
    made.to_hlo_proto()  # a limit of that client only


@pytest.mark.parametrize(
    ("constant", "operation"), [("1.17549435E-38", "maximum"), ("1.0E-30", "multiply"), ("0.0", "add")]
)
def test_small_constants_that_stay_what_they_are(constant, operation):
    program(scaled(constant, operation)).run(torch.ones(4))


def test_what_xla_cannot_compile_is_one_line():
    text = SINGLE.replace(
        "%y = stablehlo.add %x, %x : tensor<4xf32>",
        '%y = "stablehlo.custom_call"(%x) {call_target_name = "nowhere"} : (tensor<4xf32>) -> tensor<4xf32>',
    )
    with pytest.raises(VerifyException, match=r"XLA cannot compile the module: .*nowhere") as caught:
        program(text).run(torch.ones(4))
    assert "\n" not in str(caught.value)
    assert issubclass(_jax.JaxRuntimeError, type(caught.value.__cause__))
