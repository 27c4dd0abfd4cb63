"""`convert-to-stablehlo`: a pure function becomes `func.func public @main` of StableHLO operations.

Arguments and results stay what and where they are; integers become `tensor<i64>`. A result that is the new contents of
an argument (`vllm_ir.aliases`) is stated as `tf.aliasing_output` on that argument, after a check that shape and element
type are the same, which XLA does not make. Attributes in our name stay, as far as their values are builtin ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    UnitAttr,
    i32,
)
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from vllm_ir.conversions.convert_to_stablehlo.body import STATIC_SIZES, BodyConversion
from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Rejected
from vllm_ir.conversions.errors import fail
from vllm_ir.dialects.vllm_ir.function import ALIASES, FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType, shape_of, shape_text, sizes_of
from vllm_ir.frontends.fx.importer import MAIN
from vllm_ir.frontends.fx.types import is_tensor

ALIASING_OUTPUT = "tf.aliasing_output"
"""Attribute of an argument: the number of the result that takes its memory."""

_ALIAS_MODES = ("may", "none")
_BUILTIN = (StringAttr, UnitAttr, IntegerAttr)


@dataclass(frozen=True)
class ConvertToStablehloPass(ModulePass):
    """Make StableHLO of a pure function.

    `alias` is `may` to state which result takes the memory of which argument, `none` to leave that out.
    """

    name = "convert-to-stablehlo"

    alias: str = "may"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Convert `@main`; functions that it calls become part of it."""
        if self.alias not in _ALIAS_MODES:
            raise ValueError(f"option alias is {self.alias!r}, it takes {' or '.join(_ALIAS_MODES)}")
        functions = {function.sym_name.data: function for function in op.body.block.ops if isinstance(function, FuncOp)}
        main = functions.get(MAIN)
        if main is None:
            fail(op, f"there is no function @{MAIN} to convert; functions are {sorted(functions) or 'none'}")
        converted = _convert(main, functions, self.alias == "may")
        for function in functions.values():
            function.detach()
            function.erase()
        op.body.block.add_op(converted)


def _convert(main: FuncOp, functions: Mapping[str, FuncOp], alias: bool) -> func.FuncOp:
    _check_pure(main)
    builder = Builder(Block())
    builder.program = main
    try:
        block = Block(arg_types=[builder.plain(kind) for kind in main.block.arg_types])
    except Rejected as error:
        fail(main, f"it has an argument that cannot be converted: {error}")
    builder.block = block
    values: dict[SSAValue, SSAValue] = {}
    for old, new in zip(main.block.args, block.args, strict=True):
        new.name_hint = old.name_hint
        values[old] = new
    results = BodyConversion(builder, functions).block(main.block, values)
    end = func.ReturnOp.create(operands=results)
    block.add_op(end)
    inputs, outputs = list(block.arg_types), [value.type for value in results]
    arguments, given = _attributes(main, alias)
    properties: dict[str, Attribute] = {
        "sym_name": main.sym_name,
        "function_type": FunctionType.from_lists(inputs, outputs),
        "sym_visibility": StringAttr("public"),
    }
    for name, entries in (("arg_attrs", arguments), ("res_attrs", given)):
        if any(entries):
            properties[name] = ArrayAttr([DictionaryAttr(entry) for entry in entries])
    op = func.FuncOp.create(properties=properties, regions=[Region(block)], attributes=_portable(main.attributes))
    op.location = main.location
    _verify(op)
    return op


def _verify(function: func.FuncOp) -> None:
    """Operands that eager refuses, and fake kernels do not, make operations that are not valid."""
    for op in function.walk():
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            fail(op, f"its operands do not fit together: {error}")


def _check_pure(main: FuncOp) -> None:
    for argument in main.block.args:
        if isinstance(argument.type, BufferType):
            fail(
                main,
                f"argument %{argument.name_hint or argument.index} is memory ({argument.type}); "
                "run alias-outputs,functionalize first",
            )
        if is_tensor(argument.type) and DYNAMIC_INDEX in shape_of(argument.type):
            dimension = argument.type.get_shape().index(DYNAMIC_INDEX)
            fail(
                main,
                f"dimension {dimension} of argument %{argument.name_hint or argument.index} has the symbolic size "
                f"{sizes_of(argument.type)[dimension]}; {STATIC_SIZES}",
            )


def _attributes(main: FuncOp, alias: bool) -> tuple[list[dict[str, Attribute]], list[dict[str, Attribute]]]:
    """Attributes of arguments and of results, aliases among those of the arguments."""
    arguments = [_portable(main.argument_attributes(index)) for index in range(len(main.block.args))]
    count = len(main.terminator.operands)
    none: dict[str, Attribute] = {}
    given = [dict(entry.data) for entry in main.res_attrs.data] if main.res_attrs else [none] * count
    results = [_portable(entry) for entry in given]
    for output, entry in enumerate(given):
        if (aliased := entry.get(ALIASES)) is not None:
            source = _checked_alias(main, output, aliased)
            if ALIASING_OUTPUT in arguments[source]:
                first = cast(IntegerAttr, arguments[source][ALIASING_OUTPUT]).value.data
                fail(main, f"results {first} and {output} both alias argument {source}; each may take an argument once")
            if alias:
                arguments[source][ALIASING_OUTPUT] = IntegerAttr(output, i32)
    return arguments, results


def _checked_alias(main: FuncOp, output: int, aliased: Attribute) -> int:
    """The argument that a result aliases, which has the same shape and element type."""
    count = len(main.block.args)
    if not isinstance(aliased, IntegerAttr) or not 0 <= aliased.value.data < count:
        fail(main, f"result {output} aliases argument {aliased}, there are {count} arguments")
    source = aliased.value.data
    argument, result = main.block.args[source].type, main.terminator.operands[output].type
    if not is_tensor(argument) or not is_tensor(result):
        fail(main, f"result {output} of type {result} aliases argument {source} of type {argument}; both take tensors")
    if argument.element_type != result.element_type or argument.get_shape() != result.get_shape():
        fail(
            main,
            f"result {output} ({shape_text(result.get_shape())} {result.element_type}) aliases argument {source} "
            f"({shape_text(argument.get_shape())} {argument.element_type}), which has another shape or element type",
        )
    return source


def _portable(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """The attributes that every reader of the result understands."""
    return {name: value for name, value in attributes.items() if _is_builtin(value)}


def _is_builtin(value: Attribute) -> bool:
    if isinstance(value, ArrayAttr):
        return all(map(_is_builtin, cast("ArrayAttr[Attribute]", value).data))
    if isinstance(value, DictionaryAttr):
        return all(map(_is_builtin, value.data.values()))
    return isinstance(value, (*_BUILTIN, IntegerType)) or value.name.startswith("builtin.")
