"""Floating-point numbers in hexadecimal, as infinities and NaN are printed, are the bits of the number."""

import numpy as np
import pytest
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.utils.exceptions import ParseError

from vllm_ir.tools.text import parse


def module(literal: str, kind: str) -> str:
    return (
        f"func.func public @main() -> {kind} {{\n"
        f"  %c = arith.constant dense<{literal}> : {kind}\n  func.return %c : {kind}\n}}"
    )


def bits(literal: str, kind: str) -> bytes:
    (constant,) = [op for op in parse(module(literal, kind)).walk() if op.name == "arith.constant"]
    assert isinstance(constant.value, DenseIntOrFPElementsAttr)
    return constant.value.data.data


@pytest.mark.parametrize(
    ("literal", "kind", "expected"),
    [
        ("0xFF800000", "tensor<f32>", "000080ff"),
        ("[0x7F800000, 1.5, -2]", "tensor<3xf32>", "0000807f0000c03f000000c0"),
        ("0x7fc0", "tensor<2xbf16>", "c07fc07f"),
        ("0xFFF0000000000000", "tensor<f64>", "000000000000f0ff"),
        ("[0x7C00, 0x3C00]", "tensor<2xf16>", "007c003c"),
        ("0x7F", "tensor<f8E4M3FN>", "7f"),
        ("[(0x7F800000, 0x3F800000), (0.0, 1.5)]", "tensor<2xcomplex<f32>>", "0000807f0000803f000000000000c03f"),
        ("0x10", "tensor<i32>", "10000000"),
        ("[16, -1]", "tensor<2xi16>", "1000ffff"),
    ],
)
def test_bits(literal: str, kind: str, expected: str) -> None:
    assert bits(literal, kind).hex() == expected


@pytest.mark.parametrize("literal", ["-0x7F800000", "0x1FF800000"])
def test_what_is_no_number(literal: str) -> None:
    with pytest.raises(ParseError, match="is not the bits of a number of type f32"):
        parse(module(literal, "tensor<f32>"))


def test_text_of_modules_reads_back() -> None:
    values = np.array([np.inf, -np.inf, np.nan, -0.0, 1e-45, 3.4e38, 1 / 3], np.float32)
    kind = f"tensor<{values.size}xf32>"
    first = parse(module('"0x' + values.tobytes().hex().upper() + '"', kind))
    assert str(parse(str(first))) == str(first)
    (constant,) = [op for op in parse(str(first)).walk() if op.name == "arith.constant"]
    assert constant.value.data.data == values.tobytes()
