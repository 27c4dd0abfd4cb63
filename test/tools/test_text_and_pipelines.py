"""Reading text, naming passes and running them, without PyTorch."""

import pytest
from xdsl.utils.exceptions import ParseError, VerifyException

from vllm_ir.tools.pipelines import PASSES, PIPELINES, TORCH_PASSES, expand, needs_torch, run_passes
from vllm_ir.tools.text import parse

TWICE = """\
vllm_ir.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>) {
  %a = torch.call @aten.neg.default(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %b = torch.call @aten.neg.default(%x) : (tensor<2xf32>) -> tensor<2xf32>
  vllm_ir.return %a : tensor<2xf32>
}"""


def test_malformed_text_is_a_parse_error_with_its_place():
    with pytest.raises(ParseError, match=r"model:2:23(.|\n)*positional argument follows"):
        parse("\ntorch.call @op(a = 1, 2) : () -> ()", "model")


@pytest.mark.parametrize(
    "text", ["", " ", "broken", '"', '"a', "%", "vllm_ir.func", '"test.op"() {a = 0x : f32} : () -> ()', "\0", "}" * 9]
)
def test_any_malformed_text_is_a_parse_error(text: str):
    with pytest.raises(ParseError):
        parse(text)


def test_invalid_text_is_a_verification_error_with_its_place():
    text = TWICE.replace("-> (tensor<2xf32>)", "-> (tensor<3xf32>)")
    with pytest.raises(VerifyException, match=r"^<text>:1:1: @main: result 0 has type tensor<2xf32> in the body"):
        parse(text)


def test_an_error_deep_in_a_function_is_located_there():
    text = "vllm_ir.func @main(%x: !vllm_ir.buffer<2xf32>, %v: tensor<2xf32>) {\n"
    text += "  vllm_ir.write %v, %x : tensor<2xf32>, !vllm_ir.buffer<2xf32>\n  vllm_ir.return none\n}"
    with pytest.raises(VerifyException, match=r"^<text>:2:3: vllm_ir.write writes argument 0 \(%x\)"):
        parse(text)


def test_passes_run_in_place_and_in_order():
    module = parse(TWICE)
    seen: list[tuple[str, float]] = []
    result = run_passes(module, "cse,dce", on_pass=lambda name, seconds: seen.append((name, seconds)))
    assert result is module
    assert [name for name, _ in seen] == ["cse", "dce"]
    assert all(seconds >= 0 for _, seconds in seen)
    assert str(module).count("@aten.neg.default") == 1


def test_no_passes_change_nothing():
    module = parse(TWICE)
    before = str(module)
    assert str(run_passes(module, "")) == before


def test_every_pipeline_is_made_of_passes():
    for name, spec in PIPELINES.items():
        assert [entry.name for entry in expand(name)] == [entry.name for entry in expand(spec)]
        assert name not in PASSES


def test_pipelines_keep_options_of_passes():
    assert [str(entry) for entry in expand("vllm-ir-functional,lower{a=1},cse")] == [
        "functionalize",
        "lower{a=1}",
        "cse",
    ]


def test_xdsl_passes_need_no_torch():
    assert not needs_torch("canonicalize,cse,dce")
    assert all(needs_torch(f"cse,{name}") for name in TORCH_PASSES)


@pytest.mark.parametrize(
    "spec", ["nope", "cse,,dce", "cse{", "cse dce", "vllm-ir-functional{a=1}", "cse{a=1}", "cse,é"]
)
def test_wrong_pipelines_are_refused_in_one_line(spec: str):
    with pytest.raises(ValueError, match=r"\w") as caught:
        run_passes(parse(TWICE), spec)
    assert "\n" not in str(caught.value)


def test_verification_behind_each_pass():
    module = parse(TWICE)
    run_passes(module, "cse", verify_each=True)
    module.body.block.first_op.properties.pop("sym_name")
    with pytest.raises(VerifyException):
        run_passes(module, "cse", verify_each=True)
