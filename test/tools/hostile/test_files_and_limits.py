"""Where results go, and programs that ask for more than there is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

GOOD = "vllm_ir.func @main() {\n  vllm_ir.return none\n}\n"
BAD = "vllm_ir.func @main() {\n  vllm_ir.return\n"


def test_nothing_is_written_where_the_input_is_refused(refused, tmp_path: Path):
    kept = tmp_path / "kept.mlir"
    kept.write_text("before")
    for arguments in ([], ["-p", "functionalize"], ["-t", "fx"], ["-t", "stablehlo"], ["-t", "hlo-proto"]):
        refused(BAD, *arguments, "-o", kept)
        refused(BAD, *arguments, "-o", tmp_path / "new.mlir")
        assert kept.read_text() == "before"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["input.mlir", "kept.mlir"]


def test_nothing_is_written_where_the_target_fails(refused, tmp_path: Path):
    text = "vllm_ir.func @f() {\n  vllm_ir.return none\n}\nvllm_ir.func @g() {\n  vllm_ir.return none\n}\n"
    assert "the module has 2 functions and none is @main" in refused(
        text, "-t", "fx", "-o", tmp_path / "a", place=False
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.mlir"]


@pytest.mark.parametrize(
    ("target", "message"),
    [("no/such/folder/out.mlir", "no such file or directory"), (".", "directory"), ("out\0.mlir", "null")],
)
def test_outputs_that_cannot_be_written(refused, tmp_path: Path, target: str, message: str):
    assert message in refused(GOOD, "-o", f"{tmp_path}/{target}", place=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.mlir"]


def test_a_link_is_not_followed_into_another_file(accepted, tmp_path: Path):
    target, link = tmp_path / "target", tmp_path / "link.mlir"
    target.write_text("before")
    link.symlink_to(target)
    accepted(GOOD, "-o", link)
    assert "vllm_ir.func" in link.read_text()
    assert stat.S_ISREG(os.stat(link).st_mode)


@pytest.mark.parametrize("name", ["a\nb.mlir", "a\x1b[31m.mlir", "-p", "--debug", "é.mlir"])
def test_odd_names_of_files(refused, tmp_path: Path, name: str):
    refused(None, tmp_path / name, place=False)


@pytest.mark.parametrize("size", [2**40, 2**56])
def test_large_tensors_cost_nothing_until_they_are_there(accepted, size: int):
    text = (
        f"vllm_ir.func @main(%x: tensor<{size}xf32>) -> tensor<{size}xf32> {{\n"
        f"  %y = torch.call @aten.neg.default(%x) : (tensor<{size}xf32>) -> tensor<{size}xf32>\n"
        f"  vllm_ir.return %y : tensor<{size}xf32>\n}}"
    )
    assert "aten.neg" in accepted(text, "-t", "fx")
    assert "stablehlo.negate" in accepted(text, "-p", "alias-outputs,functionalize,convert-to-stablehlo")


def test_constants_have_all_their_bytes(refused):
    text = f'%c = torch.constant "00" : tensor<{2**60}xui8>'
    assert "1152921504606846976" in refused(text)


def test_dense_attributes_are_as_small_as_their_text(refused):
    text = '"test.op"() {a = dense<0> : tensor<10000000000xi64>} : () -> ()'
    assert "a dense attribute of 10000000000 elements" in refused(text)


@pytest.mark.parametrize(
    "body",
    [
        "%n = torch.call @python._operator.pow(%m, 1000000000) : (i64) -> i64",
        "%n = torch.call @python._operator.lshift(%m, 1000000000000) : (i64) -> i64",
        "%n = torch.call @python._operator.floordiv(%m, 0) : (i64) -> i64",
        "\n".join(f"%n{i + 1} = arith.muli %n{i}, %n{i} : i64" for i in range(60)).replace("%n0", "%m"),
    ],
    ids=["pow", "shift", "division", "squares"],
)
def test_numbers_do_not_grow(refused, body: str):
    text = f"vllm_ir.func @main() {{\n  %m = arith.constant 1000000 : i64\n  {body}\n  vllm_ir.return none\n}}"
    refused(text, "-t", "fx")


def test_functions_that_call_each_other(refused):
    function = (
        "vllm_ir.func functional @{} (%x: tensor<3xf32>, %flag: tensor<i1>) -> tensor<3xf32> {{\n"
        "  %r = torch.call @higher_order.cond(%flag, @{}, @{}, (%x, %flag)) : (tensor<i1>, tensor<3xf32>) -> "
        "tensor<3xf32>\n"
        "  vllm_ir.return (%r) : tensor<3xf32>\n}}\n"
    )
    text = (
        function.format("main", "one", "two")
        + function.format("one", "two", "one")
        + function.format("two", "one", "main")
    )
    passes = "alias-outputs,functionalize,convert-to-stablehlo"
    assert "calls itself" in refused(text, "-p", passes, place=False)
    refused(text, "-t", "fx")
