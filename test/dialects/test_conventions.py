"""What holds for every operation of the dialects, so that nobody has to look for it in a review."""

from importlib import import_module
from pkgutil import walk_packages

import pytest
from xdsl.dialects import test as xdsl_test
from xdsl.dialects.builtin import FloatAttr, StringAttr, SymbolRefAttr, TensorType, UnitAttr, f32, f64
from xdsl.ir import Dialect, Operation, ParametrizedAttribute, SSAValue
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, get_effects

from vllm_ir import dialects
from vllm_ir.dialects.context import DIALECTS, OUR_DIALECTS
from vllm_ir.dialects.torch.arguments import ArrayAttr, OperandAttr
from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.torch.effects import External, RandomState
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.norms import FusedAddRmsNormOp, RmsNormOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.tools.text import parse

OPERATIONS = [op for factory in OUR_DIALECTS.values() for op in factory().operations]
READ, WRITE, ALLOC = MemoryEffectKind.READ, MemoryEffectKind.WRITE, MemoryEffectKind.ALLOC
TENSOR = TensorType(f32, [4])
BUFFER = parse('"test.op"() {t = !vllm_ir.buffer<4xf32>} : () -> ()').body.block.first_op.attributes["t"]


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
def test_operation_follows_conventions(op: type[Operation]):
    assert op.__name__.endswith("Op")
    assert op.__doc__, "state what the op computes"
    assert op.get_traits_of_type(MemoryEffect), "declare what memory the op touches"


@pytest.mark.parametrize("name", OUR_DIALECTS)
def test_operations_and_attributes_are_named_after_their_dialect(name: str):
    dialect = OUR_DIALECTS[name]()
    assert dialect.name == name
    for construct in _constructs(dialect):
        assert construct.name.startswith(f"{name}."), construct
        assert construct.__doc__, construct


def test_every_construct_of_the_modules_is_in_a_dialect():
    extended = (DIALECTS["stablehlo"],)  # another project's, with operations of ours
    registered = {made for factory in (*OUR_DIALECTS.values(), *extended) for made in _constructs(factory())}
    modules = [import_module(found.name) for found in walk_packages(dialects.__path__, "vllm_ir.dialects.")]
    for module in modules:
        for value in vars(module).values():
            named = isinstance(value, type) and issubclass(value, Operation | ParametrizedAttribute)
            if named and value.__module__ == module.__name__:
                assert value in registered, value


def _constructs(dialect: Dialect):
    return (*dialect.operations, *dialect.attributes)


def values(*types) -> list[SSAValue]:
    return list(xdsl_test.TestOp.create(result_types=types).results)


def call(operands, **properties) -> CallOp:
    arguments = ArrayAttr([OperandAttr.new([_int(i)]) for i in range(len(operands))])
    return CallOp.create(
        operands=operands, properties={"callee": SymbolRefAttr("ns.op"), "args": arguments, **properties}
    )


def _int(value):
    from xdsl.dialects.builtin import IntAttr

    return IntAttr(value)


def test_a_call_touches_the_buffers_that_it_names():
    assert isinstance(BUFFER, BufferType)
    x, y, t = values(BUFFER, BUFFER, TENSOR)
    assert get_effects(call([x, y, t])) == set()
    assert get_effects(call([x, y, t], reads=index_array([1]))) == {EffectInstance(READ, y)}
    both = call([x, y, t], reads=index_array([0, 1]), writes=index_array([0]))
    assert get_effects(both) == {EffectInstance(READ, x), EffectInstance(READ, y), EffectInstance(WRITE, x)}


def test_an_update_is_no_effect():
    (t,) = values(TENSOR)
    assert get_effects(call([t], updates=index_array([0]))) == set()


@pytest.mark.parametrize(("flag", "resource"), [("random", RandomState()), ("external", External())])
def test_random_state_and_the_outside_are_resources(flag, resource):
    effects = get_effects(call([], **{flag: UnitAttr()}))
    assert effects == {EffectInstance(READ, None, resource), EffectInstance(WRITE, None, resource)}


def test_memory_operations():
    b, t = values(BUFFER, TENSOR)
    assert get_effects(ReadOp.create(operands=[b], result_types=[TENSOR])) == {EffectInstance(READ, b)}
    assert get_effects(WriteOp.create(operands=[t, b])) == {EffectInstance(WRITE, b)}
    alloc = AllocOp.create(operands=[t], result_types=[BUFFER])
    assert get_effects(alloc) == {EffectInstance(ALLOC, alloc.results[0])}
    assert get_effects(ViewOp.create(operands=[b], result_types=[BUFFER])) == set()


def test_a_high_level_operation_reads_buffers_and_writes_donated_ones():
    b, c, t = values(BUFFER, BUFFER, TENSOR)
    epsilon = {"epsilon": FloatAttr(1e-5, f64)}
    assert get_effects(RmsNormOp.create(operands=[t], result_types=[TENSOR], properties=epsilon)) == set()
    norm = FusedAddRmsNormOp.create(
        operands=[b, c, t], result_types=[TENSOR, TENSOR], properties={**epsilon, "donated": index_array([1, 2])}
    )
    assert get_effects(norm) == {EffectInstance(READ, b), EffectInstance(READ, c), EffectInstance(WRITE, c)}
    fresh = RmsNormOp.create(operands=[t], result_types=[BUFFER], properties=epsilon)
    assert get_effects(fresh) == {EffectInstance(ALLOC, fresh.results[0])}


def test_names_are_shown_where_values_have_them():
    from vllm_ir.dialects.messages import operand_text, operation_text, value_text

    x, y = values(BUFFER, TENSOR)
    op = call([x, y], note=StringAttr("kept"))
    assert (operand_text(op, 0), operand_text(op, 7)) == ("operand 0", "operand 7")
    assert value_text(y) == "result 1 of test.op"
    assert operation_text(op) == "torch.call @ns.op"
    x.name_hint = "cache"
    assert (operand_text(op, 0), value_text(x)) == ("%cache", "%cache")
