"""Whether calls give what the text says: shapes and element types of results, windows of views.

A text that lies about them is not what it says, at any level, and passes rely on it. The answers are remembered, so
that equal calls cost no more than one.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from xdsl.dialects.builtin import DYNAMIC_INDEX, DictionaryAttr, IntegerAttr, NoneType, i64
from xdsl.ir import Attribute, OpResult

from vllm_ir.dialects.messages import OperationVerifyError, result_text
from vllm_ir.dialects.torch.arguments import ArgumentList, OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of, element_type_of, shape_of, shape_text
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.inference import infer_types
from vllm_ir.frontends.fx.schemas import OpInfo, scattered_view
from vllm_ir.frontends.fx.storages import storage_key, tensors_in
from vllm_ir.frontends.fx.symbols import example_tensor
from vllm_ir.frontends.fx.torch_objects import schema_of
from vllm_ir.frontends.fx.types import TypeCache, is_shaped, static_window
from vllm_ir.frontends.fx.values import decode


def check_results(op: CallOp, info: OpInfo) -> None:
    """The results of a call are of the shapes and element types that PyTorch gives, as far as those are known.

    Raises:
        OperationVerifyError: they are not, or PyTorch refuses the operands.
    """
    plain = all(is_shaped(kind) for kind in op.operand_types)  # what depends on numbers is not known
    static = plain and not any(DYNAMIC_INDEX in shape_of(kind) for kind in op.operand_types)
    try:
        inferred = infer_types(info.overload, op.arguments(), op.operands)
    except FxImportError as error:
        # Other sizes may do. Operators of others need not have a fake kernel. Of writes, functionalize says more.
        if not static or info.writes or info.overload.namespace not in ("aten", "prims"):
            return
        raise OperationVerifyError(op, f"@{op.target}: {' '.join(error.reason.split())}") from error
    if static and (view := scattered_view(info.overload)) is not None:
        _check_piece(op, view)
    if inferred is None:
        return
    given = list(op.results)[: len(op.results) - len(op.update_indices)]
    returns = schema_of(info.overload).returns
    counted = not any(result.type.kind() == "ListType" for result in returns)
    if op.updates is not None:
        if not counted:
            return
        # What the operator returns of its operands is among the new values.
        inferred = [kind for kind, result in zip(inferred, returns, strict=False) if result.alias_info is None]
    if not info.has_results:
        inferred = []
    if len(given) != len(inferred) and (plain or counted):
        raise OperationVerifyError(op, f"@{op.target} gives {len(inferred)} results, the text states {len(given)}")
    for result, kind in zip(given, inferred, strict=False):
        _check_result(op, result, kind, static)


def _check_piece(op: CallOp, view: OpOverload) -> None:
    """What is put into a base is like the piece that the view takes from it. Fake kernels do not look."""
    base, piece, *rest = op.arguments()
    try:
        kinds = infer_types(view, [base, *rest], op.operands)
    except FxImportError as error:
        raise OperationVerifyError(op, f"@{op.target}: {' '.join(error.reason.split())}") from error
    if isinstance(piece, OperandAttr) and kinds is not None and is_shaped(kinds[0]):
        given, taken = shape_of(op.operands[piece.index.data].type), shape_of(kinds[0])
        if given != taken:
            raise OperationVerifyError(
                op, f"@{op.target} puts {shape_text(given)} where the base has {shape_text(taken)}"
            )


def _check_result(op: CallOp, result: OpResult, kind: Attribute, static: bool) -> None:
    stated = result.type
    if isinstance(stated, NoneType) or isinstance(kind, NoneType):
        return
    if not is_shaped(kind) or not is_shaped(stated):
        same = is_shaped(kind) == is_shaped(stated)
    else:
        one, other = shape_of(kind), shape_of(stated)
        sizes_agree = not static or all(
            DYNAMIC_INDEX in pair or pair[0] == pair[1] for pair in zip(one, other, strict=False)
        )
        same = len(one) == len(other) and sizes_agree and element_type_of(kind) == element_type_of(stated)
    if not same:
        name = result_text(op, list(op.results).index(result))
        raise OperationVerifyError(
            op, f"@{op.target} gives {_short(kind)}, the text states {_short(stated)} for {name}"
        )


def _short(kind: Attribute) -> str:
    """Shape and element type alone."""
    return f"{shape_text(shape_of(kind))} of {element_type_of(kind)}" if is_shaped(kind) else f"a number {kind}"


def check_windows(op: ViewOp, overload: OpOverload) -> None:
    """The results of a view are the windows that PyTorch gives, where sizes are static.

    Raises:
        OperationVerifyError: they are not, or PyTorch refuses the view.
    """
    windows = _windows_of(op, overload)
    if windows is None:
        return
    if len(windows) != len(op.results):
        raise OperationVerifyError(op, f"@{op.target} gives {len(windows)} views, the text states {len(op.results)}")
    for index, (window, stated) in enumerate(zip(windows, op.result_types, strict=True)):
        if window is None:
            raise OperationVerifyError(
                op, f"@{op.target} gives new memory, the text states a window for {result_text(op, index)}"
            )
        if not _same_window(window, stated):
            raise OperationVerifyError(
                op, f"@{op.target} gives {window}, the text states {stated} for {result_text(op, index)}"
            )


def check_new_memory(op: CallOp, overload: OpOverload) -> None:
    """A call of a view operator on a buffer, with tensors as results, is one that copies: the others are views.

    Whoever runs the graph would hand out a window onto the buffer as a value that nobody writes.

    Raises:
        OperationVerifyError: a result is a window onto the buffer. It is not found out where sizes are dynamic.
    """
    for index, window in enumerate((_windows_of(op, overload) or ())[: len(op.results)]):
        if window is not None and not isinstance(op.results[index].type, BufferType):
            name = result_text(op, index)
            raise OperationVerifyError(
                op, f"@{op.target} gives a window onto {op.operands[0].type}, the text states new memory for {name}"
            )


def _windows_of(op: CallOp | ViewOp, overload: OpOverload) -> tuple[BufferType | None, ...] | None:
    """What a view operator gives of a buffer, as `_windows` says it; None where sizes are dynamic, or of a value."""
    base = op.operands[0].type
    if not isinstance(base, BufferType) or static_window(base) is None or len(op.operands) > 1:
        return None
    try:
        return _windows(overload, op.args, op.kwargs, base)
    except FxImportError as error:
        raise OperationVerifyError(op, f"@{op.target}: {error.reason}") from error


def _same_window(window: BufferType, stated: Attribute) -> bool:
    """Whether two windows are the same elements: strides of dimensions of size 1, and of empty tensors, say nothing."""
    if window == stated or not isinstance(stated, BufferType):
        return window == stated
    kinds = [(element_type_of(kind), device_of(kind), shape_of(kind)) for kind in (window, stated)]
    one, other = static_window(window), static_window(stated)
    if one is None or other is None or kinds[0] != kinds[1]:
        return False
    sizes, strides, offset = one
    steps = zip(sizes, strides, other[1], strict=True)
    return 0 in sizes or (offset == other[2] and all(size == 1 or step == same for size, step, same in steps))


@lru_cache(maxsize=4096)
def _windows(
    overload: OpOverload, args: ArgumentList, kwargs: DictionaryAttr | None, base: BufferType
) -> tuple[BufferType | None, ...]:
    """The windows of the results; None for one in memory of its own."""
    with FakeTensorMode(), torch.no_grad():
        example = example_tensor(base, IntegerAttr(0, i64), None, {})
        positional = [decode(tree, [example], str) for tree in args.data]
        keywords = {name: decode(tree, [example], str) for name, tree in (kwargs.data.items() if kwargs else ())}
        try:
            result: object = overload(*positional, **keywords)
            types, memory = TypeCache(), storage_key(example)
            return tuple(
                types.buffer(tensor) if storage_key(tensor) == memory else None for tensor in tensors_in(result)
            )
        except Exception as error:
            raise FxImportError(f"PyTorch refuses the view: {error_summary(error)}") from error
