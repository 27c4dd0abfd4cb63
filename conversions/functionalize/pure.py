"""Pure functions: arguments that stand for buffers become tensors, final values become results.

Which results are which arguments is stated before (`alias-outputs`); here the memory goes away. Arguments that share
memory have one root. Its initial value is put together from theirs, and each argument's final value is read from it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, BlockArgument, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from vllm_ir.conversions.analysis.regions import covers
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.functionalize.calls import relayout
from vllm_ir.conversions.functionalize.donation import refuse_donated
from vllm_ir.conversions.functionalize.storage import Root, Storages, Window
from vllm_ir.conversions.functionalize.strided import StridedCodec
from vllm_ir.conversions.functionalize.views import count, reshape
from vllm_ir.dialects.vllm_ir.function import DONATED, MUTATED, FuncOp, ReturnOp, root_of
from vllm_ir.dialects.vllm_ir.memory import ReadOp, ViewOp
from vllm_ir.dialects.vllm_ir.outputs import output_items
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of, shape_of
from vllm_ir.frontends.fx.build import CallBuilder

aten = torch.ops.aten


def assemble_groups(function: FuncOp, storages: Storages, b: CallBuilder) -> None:
    """Give each storage that several arguments are windows onto a value that is made of theirs."""
    for root in storages.roots:
        if isinstance(root.buffer, OpResult) and isinstance(root.buffer.op, ViewOp):
            windows = {
                argument: window
                for argument in function.block.args
                if (window := storages.windows.get(argument)) is not None and window.root is root
            }
            _refuse_unknown(function, windows)
            _assemble(root, windows, b)


def _refuse_unknown(function: FuncOp, windows: Mapping[BlockArgument, Window]) -> None:
    """Stop at a view of memory that no argument holds: its value is not known to a function of values."""
    for op in function.block.ops:
        if not isinstance(op, ViewOp) or op.target != "aten.as_strided.default" or root_of(op.base) not in windows:
            continue
        kind = op.results[0].type
        is_known = any(isinstance(kind, BufferType) and covers(window.type, kind) for window in windows.values())
        if not is_known and op.results[0].first_use is not None:
            fail(
                op,
                f"reaches memory that no argument holds all of, as {kind}; a function of values has only what its "
                "arguments hold: pass the tensor that it is a view of",
            )


def _assemble(root: Root, windows: Mapping[BlockArgument, Window], b: CallBuilder) -> None:
    """Put the arguments' values where their windows are; a window inside of another one holds nothing new."""
    largest = sorted(windows.items(), key=lambda entry: -count(shape_of(entry[1].type)))
    placed: list[Window] = []
    for argument, window in largest:
        if any(covers(other.type, window.type) for other in placed):
            continue
        value = b.add(ReadOp.create(operands=[argument], result_types=[window.type.tensor])).results[0]
        if root.current is None:
            root.current = _whole(root, window, value, b)
        if root.current is not value:
            window.assign(b, value)
        placed.append(window)
    root.initial = root.current


def _whole(root: Root, window: Window, value: SSAValue, b: CallBuilder) -> SSAValue:
    """What the memory holds before anything else is put there: the first value, if it is all of it, or zeros."""
    codec, length = window.codec, shape_of(root.type)[0]
    plain = window.parent is not None and window.parent.parent is None
    if plain and isinstance(codec, StridedCodec) and codec.is_all_of(root.type):
        return reshape(b, value, [length], root.type.tensor)
    device = torch.device(device_of(root.type))
    return b.value(aten.full.default, [[length], 0], root.type.tensor, dtype=root.type.element_type, device=device)


def return_values(function: FuncOp, returned: ReturnOp, storages: Storages, b: CallBuilder) -> None:
    """Return what each window holds at the end."""
    original = sum(index is not None for index in output_items(returned)[: function.original_output_count])
    for index, operand in enumerate(returned.operands):
        if not isinstance(operand.type, BufferType):
            continue
        window = storages.windows[operand]
        if index < original:
            refuse_donated(returned, window, operand)
        returned.operands[index] = relayout(b, window.value(b), operand)


def make_pure(function: FuncOp, storages: Storages) -> None:
    """Make tensors of the arguments, and say in the signature what has become of them."""
    attributes: list[dict[str, Attribute]] = []
    results = set(function.io_map.values())
    for index, argument in enumerate(function.block.args):
        entry = function.argument_attributes(index)
        entry.pop(MUTATED, None)
        window = storages.windows.get(argument)
        given = window.root.donations if window is not None and index not in results else []
        if window is not None and any(covers(donation.window, window.type) for donation in given):
            entry[DONATED] = UnitAttr()  # all of it: what is left of memory given away in part is the caller's
        attributes.append(entry)
    for op in list(function.block.ops):
        if isinstance(op, ReadOp):
            op.result.replace_all_uses_with(op.buffer)
            op.detach()
            op.erase()
    for argument in list(function.block.args):
        if isinstance(argument.type, BufferType):
            tensor = Rewriter.replace_value_with_new_type(argument, argument.type.tensor)
            tensor.name_hint = argument.name_hint
            if isinstance(tensor, BlockArgument):
                tensor.location = argument.location
    function.set_argument_attributes(attributes)
    function.update_type()
