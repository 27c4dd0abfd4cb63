"""Argument trees survive printing and parsing, whatever is in them."""

from __future__ import annotations

import math
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import test as xdsl_test
from xdsl.dialects.builtin import (
    ArrayAttr,
    ComplexType,
    DictionaryAttr,
    FloatAttr,
    IntAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    bf16,
    f32,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.printer import Printer

from vllm_ir.dialects.context import make_context
from vllm_ir.dialects.torch.arguments import (
    FALSE,
    NONE,
    TRUE,
    ComplexAttr,
    DeviceAttr,
    LayoutFormatAttr,
    MemoryFormatAttr,
    OperandAttr,
    TupleAttr,
    integer_argument,
    map_operands,
    operand_indices,
    ui64,
)
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.tools.text import parse

# Every character but lone surrogates, which no operator can take: PyTorch's strings are UTF-8.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
FLOATS = st.floats() | st.sampled_from([5e-324, 1e300, 0.1234567890123456, -0.0, math.inf, -math.inf, math.nan])
INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 2**63, 2**64 - 1, 0, -1])
LEAVES = st.one_of(
    st.sampled_from([NONE, TRUE, FALSE, bf16, f32, i1, i64, ComplexType(f32), SymbolRefAttr("sub")]),
    INTEGERS.map(integer_argument),
    FLOATS.map(lambda value: FloatAttr(value, f64)),
    TEXT.map(StringAttr),
    st.builds(lambda x, y: ComplexAttr(FloatAttr(x, f64), FloatAttr(y, f64)), FLOATS, FLOATS),
    st.sampled_from(["cpu", "cuda:0"]).map(lambda name: DeviceAttr(StringAttr(name))),
    st.just(LayoutFormatAttr(StringAttr("strided"))),
    st.just(MemoryFormatAttr(StringAttr("channels_last"))),
)


def trees(leaves: st.SearchStrategy[Attribute]) -> st.SearchStrategy[Attribute]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(ArrayAttr),
            st.lists(inner, max_size=3).map(lambda items: TupleAttr(ArrayAttr(items))),
            st.dictionaries(TEXT, inner, max_size=3).map(DictionaryAttr),
        ),
        max_leaves=8,
    )


def module_of(arguments: list[Attribute], sources: list[int]) -> ModuleOp:
    """A call with `arguments`, whose i-th operand is the value `sources[i]`."""
    values = xdsl_test.TestOp.create(result_types=[i64] * 3)
    call = CallOp.create(
        operands=[values.results[source] for source in sources],
        properties={"callee": SymbolRefAttr("ns.op"), "args": ArrayAttr(arguments)},
    )
    return ModuleOp([values, call])


def text_of(module: ModuleOp, generic: bool) -> str:
    stream = StringIO()
    Printer(stream=stream, print_generic_format=generic).print_op(module)
    return stream.getvalue()


@given(trees(LEAVES))
def test_static_arguments_come_back(tree: Attribute):
    module = module_of([tree], [])
    module.verify()
    for generic in (False, True):
        assert parse(text_of(module, generic)).is_structurally_equivalent(module)


@given(trees(LEAVES))
def test_the_call_syntax_needs_no_parser_of_ours(tree: Attribute):
    module = module_of([tree], [])
    assert Parser(make_context(), str(module)).parse_module().is_structurally_equivalent(module)


@given(st.data(), st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_operands_come_back_with_their_numbers(data: st.DataObject, sources: list[int]):
    """One value may be several operands, an operand may appear again, and in any order."""
    order = data.draw(st.permutations(range(len(sources))))
    again = data.draw(st.lists(st.sampled_from(range(len(sources))), max_size=3))
    references = st.just([OperandAttr(IntAttr(index)) for index in (*order, *again)])
    arguments = data.draw(references.flatmap(lambda items: st.tuples(*map(st.just, items), trees(LEAVES))))
    module = module_of([ArrayAttr(arguments[:2]), *arguments[2:]], sources)
    module.verify()
    for generic in (False, True):
        assert parse(text_of(module, generic)).is_structurally_equivalent(module)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_beyond_64_bits_have_no_attribute(value: int):
    assert integer_argument(value) is None


def test_large_unsigned_integers_do_not_become_negative():
    assert integer_argument(2**64 - 1) == IntegerAttr(2**64 - 1, ui64)
    assert integer_argument(2**64 - 1).value.data == 2**64 - 1


def test_mapping_replaces_operands_at_every_depth():
    x, y = (OperandAttr(IntAttr(index)) for index in (0, 1))
    tree = ArrayAttr([x, TupleAttr(ArrayAttr([y, NONE])), DictionaryAttr({"k": ArrayAttr([y])})])
    assert list(operand_indices([tree, x])) == [0, 1, 1, 0]
    mapped = map_operands(tree, {1: TRUE})
    assert mapped == ArrayAttr([x, TupleAttr(ArrayAttr([TRUE, NONE])), DictionaryAttr({"k": ArrayAttr([TRUE])})])


def test_strings_of_other_places_come_back_too():
    text = (
        'builtin.module attributes {"é" = "ü\\00"} {\n  vllm_ir.func @"ö"() {\n    vllm_ir.return {"ä" = "€"}\n  }\n}'
    )
    module = parse(text)
    assert module.attributes["é"] == StringAttr("ü\0")
    for generic in (False, True):
        assert parse(text_of(module, generic)).is_structurally_equivalent(module)
