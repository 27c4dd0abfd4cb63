"""Which result of a StableHLO function takes the memory of which argument: checked, and put as XLA reads it.

In StableHLO an argument states it, `tf.aliasing_output = <result>`. XLA takes that as permission ("may"): what is not
donated is copied. The obligation ("must") is an attribute of the module, which jaxlib reads without checking its form:
a malformed one ends the process. So modules that bring such an attribute are refused, and only this file writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, TensorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.vllm_ir.types import shape_text

AliasMode = Literal["may", "must", "none"]
MODES: Sequence[AliasMode] = ("may", "must", "none")

ALIASING_OUTPUT = "tf.aliasing_output"
MODULE_ALIASES = "mhlo.input_output_alias"
_DONOR = "jax.buffer_donor"


def entry_function(module: ModuleOp) -> func.FuncOp:
    """The function `@main` of a StableHLO module.

    Raises:
        VerifyException: there is none.
    """
    for op in module.body.block.ops:
        if isinstance(op, func.FuncOp) and op.sym_name.data == "main":
            return op
    raise VerifyException("the module has no func.func @main; run convert-to-stablehlo first")


def aliased_arguments(module: ModuleOp) -> dict[int, int]:
    """`{result: argument}` as the arguments of `@main` state it, by result.

    Raises:
        VerifyException: a statement is malformed, out of range, made twice, or about another shape or element type.
    """
    if MODULE_ALIASES in module.attributes:
        raise VerifyException(
            f"the module has the attribute {MODULE_ALIASES}, which jaxlib reads unchecked; "
            f"state aliases as {ALIASING_OUTPUT} on arguments, and export with alias='must'"
        )
    function = entry_function(module)
    found: dict[int, int] = {}
    for argument, attributes in enumerate(_argument_attributes(function)):
        if _DONOR in attributes:
            raise VerifyException(
                f"argument {argument} has {_DONOR}: XLA would choose a result for it; state {ALIASING_OUTPUT} instead"
            )
        if (stated := attributes.get(ALIASING_OUTPUT)) is not None:
            result = _checked_result(function, argument, stated)
            if result in found:
                raise VerifyException(f"arguments {found[result]} and {argument} both alias result {result}")
            found[result] = argument
    return dict(sorted(found.items()))


def _argument_attributes(function: func.FuncOp) -> list[Mapping[str, Attribute]]:
    if function.arg_attrs is None:
        return [{} for _ in function.function_type.inputs.data]
    return [entry.data for entry in function.arg_attrs.data]


def _checked_result(function: func.FuncOp, argument: int, stated: Attribute) -> int:
    """The result that an argument states."""
    inputs, outputs = function.function_type.inputs.data, function.function_type.outputs.data
    if not isinstance(stated, IntegerAttr):
        raise VerifyException(f"{ALIASING_OUTPUT} of argument {argument} is {stated}, it takes the number of a result")
    result = cast(IntegerAttr, stated).value.data
    if not 0 <= result < len(outputs):
        raise VerifyException(f"argument {argument} aliases result {result}, the function has {len(outputs)}")
    given, taken = inputs[argument], outputs[result]
    if not isinstance(given, TensorType) or not isinstance(taken, TensorType):
        raise VerifyException(f"argument {argument} of type {given} aliases result {result} of type {taken}")
    given, taken = cast("TensorType[Attribute]", given), cast("TensorType[Attribute]", taken)
    if given.get_shape() != taken.get_shape():
        raise VerifyException(
            f"argument {argument} of shape {shape_text(given.get_shape())} aliases result {result} "
            f"of shape {shape_text(taken.get_shape())}; they must be the same"
        )
    if given.element_type != taken.element_type:
        raise VerifyException(
            f"argument {argument} of {given.element_type} aliases result {result} of {taken.element_type}; "
            "they must be the same"
        )
    return result


def drop_aliases(module: ModuleOp) -> None:
    """Take what arguments state about aliases out of the module."""
    function = entry_function(module)
    if function.arg_attrs is None:
        return
    entries = [
        {name: value for name, value in entry.data.items() if name != ALIASING_OUTPUT}
        for entry in function.arg_attrs.data
    ]
    function.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(entry) for entry in entries])


def must_aliases(aliases: Mapping[int, int], *, tuple_root: bool) -> str:
    """The module attribute, as text, that obliges XLA to keep `{result: argument}`.

    A result is named by its place in the root tuple; a single result that is not in a tuple has no place.
    """
    entries = [
        '{alias = {kind = "must_alias", parameter_index = array<i64>, parameter_number = '
        f"{argument} : i64}}, output_index = array<i64{f': {result}' if tuple_root else ''}>}}"
        for result, argument in aliases.items()
    ]
    return f"[{', '.join(entries)}]"
