"""Whether a module that was read from text says what is true of the operators that it calls.

Passes, exporters and the interpreter take its word for it.
"""

from __future__ import annotations

import torch
from torch._ops import HigherOrderOperator, OpOverload
from xdsl.dialects.builtin import Float64Type, IntAttr, IntegerType, ModuleOp
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import OperationVerifyError
from vllm_ir.dialects.torch.arguments import OperandAttr, operand_indices
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of
from vllm_ir.frontends.fx.argument_kinds import argument_types, fits
from vllm_ir.frontends.fx.result_types import check_new_memory, check_results, check_windows
from vllm_ir.frontends.fx.schemas import OpInfo, Target, op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload, schema_of
from vllm_ir.frontends.fx.types import is_shaped


def check_module(module: ModuleOp) -> None:
    """Check that calls state what is true of their operators: arguments, effects, results; `VerifyException` if not."""
    functions = {op.sym_name.data for op in module.walk() if isinstance(op, FuncOp)}
    checked: set[int] = set()  # types by identity: they are shared
    for op in module.walk():
        _check_devices(op, checked)
        if isinstance(op, FuncOp):
            _check_name(op)
        elif isinstance(op, CallOp) and op.target not in functions:
            _check_call(op)
        elif isinstance(op, ViewOp):
            target = _resolved(op)
            if not is_overload(target) or not _gives_views(target):
                raise OperationVerifyError(op, f"@{op.target} is not a view operator")
            _check_arguments(op, op_info(target))
            check_windows(op, target)


def _check_name(function: FuncOp) -> None:
    """A call is of a function or of an operator; its name says which."""
    name = function.sym_name.data
    try:
        resolve(name)
    except VerifyException:
        return
    raise OperationVerifyError(function, f"@{name} is an operator's name, which a function cannot have")


def _check_devices(op: Operation, checked: set[int]) -> None:
    """The devices of values are names that PyTorch knows."""
    arguments = op.block.arg_types if isinstance(op, FuncOp) else ()
    kinds: list[Attribute] = [*op.result_types, *arguments]
    for kind in kinds:
        if id(kind) not in checked and is_shaped(kind):
            checked.add(id(kind))
            device = device_of(kind)
            try:
                torch.device(device)
            except RuntimeError:
                raise OperationVerifyError(op, f"{device!r} is not a device of PyTorch") from None


def _resolved(op: CallOp | ViewOp) -> Target:
    try:
        return resolve(op.target)
    except VerifyException as error:
        raise OperationVerifyError(op, str(error)) from None


_SECRET_VIEWS = (
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.unsafe_split.Tensor,
    torch.ops.aten.unsafe_split_with_sizes.default,
)
"""Operators whose results are in the memory of their argument, without their schemas saying so."""


def _gives_views(overload: OpOverload) -> bool:
    """Whether results are in the memory of an argument."""
    schema = schema_of(overload)
    wildcard = any(a.alias_info is not None and "*" in a.alias_info.after_set for a in schema.arguments)
    declared = wildcard or any(r.alias_info is not None for r in schema.returns)
    return not schema.is_mutable and (declared or overload in _SECRET_VIEWS)


def _check_call(op: CallOp) -> None:
    target = _resolved(op)
    if not is_overload(target):
        if not isinstance(target, HigherOrderOperator):
            _check_number_function(op)
        return
    info = op_info(target)
    _check_arguments(op, info)
    arguments = op.arguments()
    written = set(operand_indices(arguments[index] for index in info.writes))
    stated = set(op.write_indices) | set(op.update_indices)
    if stated != written:
        raise OperationVerifyError(
            op, f"@{op.target} writes operands {sorted(written)}, the text states {sorted(stated)}"
        )
    buffers = {i for i, operand in enumerate(op.operands) if isinstance(operand.type, BufferType)}
    reads = set(op.reads.get_values()) if op.reads is not None else set[int]()
    if not info.metadata_only and (missing := buffers - reads - written):
        raise OperationVerifyError(op, f"@{op.target} reads operands {sorted(missing)}, which the text does not state")
    for name, actual, claimed in (
        ("random", info.random, op.random is not None),
        ("external", info.external, op.external is not None),
    ):
        if actual != claimed:
            raise OperationVerifyError(
                op, f"@{op.target} is {'' if actual else 'not '}{name}, the text states otherwise"
            )
    if op.operands and _gives_views(info.overload):
        check_new_memory(op, info.overload)
    check_results(op, info)


def _check_number_function(op: CallOp) -> None:
    """A function of Python takes numbers, at least one of them an operand, and gives one number."""
    if op.kwargs is not None or len(op.results) != 1 or not op.operands:
        raise OperationVerifyError(op, f"@{op.target} takes operands, no keywords, and gives one number")
    for kind in (*op.operand_types, *op.result_types):
        if not isinstance(kind, IntegerType | Float64Type):
            raise OperationVerifyError(op, f"@{op.target} is a function of numbers, {kind} is none")


def _check_arguments(op: CallOp | ViewOp, info: OpInfo) -> None:
    """The arguments are those of the schema, in its order, and of its kinds."""
    keywords = list(op.kwargs.data) if op.kwargs is not None else []
    given, taken = len(op.args.data) + len(keywords), len(info.arguments)
    if given != taken:
        raise OperationVerifyError(op, f"@{op.target} takes {taken} arguments, {given} are given")
    names = [argument.name for argument in info.arguments[info.positional :]]
    if keywords != names:
        raise OperationVerifyError(
            op,
            f"@{op.target} takes the keywords {', '.join(names) or 'none'}, here are {', '.join(keywords) or 'none'}",
        )
    trees: list[Attribute] = [*op.args.data, *(op.kwargs.data.values() if op.kwargs is not None else ())]
    if info.is_view and (not op.operands or trees[0] != OperandAttr(IntAttr(0))):
        raise OperationVerifyError(op, f"@{op.target} is a view, its first argument is {trees[0]}, not operand 0")
    for argument, kind, tree in zip(info.arguments, argument_types(info.overload), trees, strict=True):
        if not fits(tree, kind, op.operand_types):
            raise OperationVerifyError(op, f"@{op.target}: {argument.name} is {tree}, the schema takes {kind}")
