"""Registered ops as operations of the `vllm_ir` dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)

from vllm_ir.dialects.torch.call import index_array
from vllm_ir.dialects.vllm_ir import VllmIr
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects, TensorOrBuffer
from vllm_ir.frontends.fx.values import decode
from vllm_ir.frontends.ops.op import IrOp

_DECLARED = {op.name: op for op in VllmIr.operations}


def is_tensor_type(type_name: str) -> bool:
    """Whether a schema's argument type becomes an operand."""
    return type_name in ("Tensor", "Optional[Tensor]", "List[Tensor]", "List[Optional[Tensor]]")


@cache
def operation_class(op: IrOp) -> type[IRDLOperation]:
    """The operation of the dialect that stands for `op`; made from its schema if none is declared."""
    name = f"vllm_ir.{op.name}"
    declared = _DECLARED.get(name)
    if declared is not None and issubclass(declared, IRDLOperation):
        return declared
    namespace: dict[str, object] = {"name": name, "__doc__": op.native.__doc__ or f"Registered op {op.name}."}
    variable = 0
    for argument in op.schema.arguments:
        type_name = str(argument.type)
        if type_name == "Tensor":
            namespace[argument.name] = operand_def(TensorOrBuffer)
        elif type_name == "Optional[Tensor]":
            namespace[argument.name] = opt_operand_def(TensorOrBuffer)
            variable += 1
        elif is_tensor_type(type_name):
            namespace[argument.name] = var_operand_def(TensorOrBuffer)
            variable += 1
        else:
            namespace[argument.name] = opt_prop_def(Attribute)
    for index in range(len(op.schema.returns)):
        namespace[f"result_{index}"] = result_def(TensorOrBuffer)
    namespace["donated"] = opt_prop_def(DenseArrayBase)
    namespace["traits"] = traits_def(OperandEffects())
    if variable > 1:
        namespace["irdl_options"] = (AttrSizedOperandSegments(as_property=True),)
    class_name = "".join(part.capitalize() for part in op.name.split("_")) + "Op"
    return irdl_op_definition(type(class_name, (IRDLOperation,), namespace))


def build_operation(
    op: IrOp,
    operands: Sequence[SSAValue | Sequence[SSAValue] | None],
    attributes: dict[str, Attribute],
    results: Sequence[Attribute],
    donated: Sequence[int],
) -> Operation:
    """One operation for a call of `op`: an entry of `operands` for each tensor parameter, in schema order."""
    properties: dict[str, Attribute] = dict(attributes)
    flat: list[SSAValue] = []
    sizes: list[int] = []
    for operand in operands:
        values = [operand] if isinstance(operand, SSAValue) else list(operand or ())
        sizes.append(len(values))
        flat.extend(values)
    if donated:
        properties["donated"] = index_array(donated)
    cls = operation_class(op)
    if any(isinstance(option, AttrSizedOperandSegments) for option in cls.get_irdl_definition().options):
        properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, sizes)
    return cls.create(operands=flat, result_types=results, properties=properties)


def operand_segments(op: Operation, ir_op: IrOp) -> list[int | bool | None]:
    """What `op` holds of each parameter of `ir_op`.

    None for an attribute, whether there is a tensor, or how many tensors a list has.
    """
    kinds = [str(argument.type) for argument in ir_op.schema.arguments]
    sizes = op.properties.get("operandSegmentSizes")
    tensors = [kind for kind in kinds if is_tensor_type(kind)]
    if isinstance(sizes, DenseArrayBase):
        counts = [int(size) for size in sizes.get_values()]
    else:
        # At most one parameter is optional or a list: it has what the others leave.
        fixed = sum(kind == "Tensor" for kind in tensors)
        counts = [1 if kind == "Tensor" else len(op.operands) - fixed for kind in tensors]
    remaining = iter(counts)
    return [
        None if not is_tensor_type(kind) else next(remaining) if kind.startswith("List") else bool(next(remaining))
        for kind in kinds
    ]


def call_arguments(op: Operation, ir_op: IrOp, operands: Iterable[object]) -> tuple[object, ...]:
    """The arguments with which `ir_op` is called for `op`: `operands` for its tensors, attributes for the others."""
    remaining = iter(operands)
    arguments: list[object] = []
    for argument, segment in zip(ir_op.schema.arguments, operand_segments(op, ir_op), strict=True):
        if segment is None:
            given = op.properties.get(argument.name)
            arguments.append(None if given is None else decode(given, [], str))
        elif isinstance(segment, bool):
            arguments.append(next(remaining) if segment else None)
        else:
            arguments.append([next(remaining) for _ in range(segment)])
    return tuple(arguments)
