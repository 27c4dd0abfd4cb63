"""`lower`: high-level operations become the operations of one of their implementations.

For each operation, the first provider of its priority list that accepts the operands is traced and inlined. One whose
trace gives other types or shapes than the op is passed over like one that does not accept them. What was chosen, and
which providers were passed over for which reason, stays in the module's `vllm_ir.selected` and `vllm_ir.rejected`
attributes, by op and by name of the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, NameLoc, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.analysis.windows import whole_window
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.inline import inline
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.conversions.trace import Examples, Traced, inductor_decompositions, trace_callable
from vllm_ir.conversions.trace_store import current_store
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.dialects.vllm_ir.types import BufferType, sizes_of
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.regions import overlaps_itself
from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import is_shaped, is_tensor
from vllm_ir.frontends.fx.values import decode
from vllm_ir.frontends.ops import IrOp, IrOpImpl, ops
from vllm_ir.frontends.ops.dialect import operand_segments
from vllm_ir.frontends.ops.size_ranges import SizeRanges

SELECTED = "vllm_ir.selected"
REJECTED = "vllm_ir.rejected"
Argument: TypeAlias = SSAValue | list[SSAValue] | Attribute | None
_Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class LowerPass(LimitedPass):
    """Replace high-level operations by the implementation of the first provider that accepts the operands.

    `decompose` breaks the traced operators down to those that Inductor takes. With `limit`, that many operations are
    lowered, in program order.
    """

    name = "lower"

    decompose: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Lower every function of the module."""
        _Lowering(op, self.decompose, self.start()).run()


@dataclass(frozen=True)
class _Choice:
    """What operations with the same operands become, in attributes that they share."""

    provider: StringAttr
    rejected: DictionaryAttr | None
    """Reasons by provider, of those that were passed over."""
    traced: Traced


class _Lowering:
    def __init__(self, module: ModuleOp, decompose: bool, rewrites: Rewrites) -> None:
        self.module = module
        self.rewrites = rewrites
        self.decompositions = inductor_decompositions() if decompose else None
        self.examples = Examples()
        self.choices: dict[_Key, _Choice] = {}
        self.selected: dict[str, dict[str, Attribute]] = {}
        self.rejected: dict[str, dict[str, Attribute]] = {}

    def run(self) -> None:
        for function in self.module.body.block.ops:
            if isinstance(function, FuncOp):
                for op in list(function.block.ops):
                    if op.has_trait(OperandEffects) and self.rewrites.take(op, "is lowered"):
                        self._lower(op)
        for name, entries in ((SELECTED, self.selected), (REJECTED, self.rejected)):
            if entries:
                self.module.attributes[name] = DictionaryAttr(
                    {op: DictionaryAttr(nodes) for op, nodes in entries.items()}
                )

    def _lower(self, op: Operation) -> None:
        if any(isinstance(operand.type, BufferType) for operand in op.operands):
            fail(op, "has buffers as operands; run functionalize first")
        ir_op = ops[op.name.removeprefix("vllm_ir.")]
        arguments = _arguments(op, ir_op)
        key = _key(op, arguments)
        choice = self.choices.get(key)
        if choice is None:
            choice = self.choices[key] = self._choose(op, ir_op, arguments, key)
        self._record(op, ir_op, choice)
        tensors = [value for argument in arguments for value in _tensors(argument)]
        b = CallBuilder(lambda new: _insert_before(new, op))
        b.at(op)
        results = inline(choice.traced, tensors, self.examples.original, b)
        for old, new in zip(op.results, results, strict=True):
            if new.type != old.type and (
                _has_other_sizes(new, old) or any(_sees_layout(use.operation) for use in old.uses)
            ):
                # The implementation lays the value out in another way, or knows its sizes by other expressions.
                new = b.add(RelayoutOp.create(operands=[new], result_types=[old.type])).results[0]
            old.replace_all_uses_with(new)
        op.detach()
        op.erase()

    def _choose(self, op: Operation, ir_op: IrOp, arguments: list[Argument], key: _Key) -> _Choice:
        """The first implementation that accepts the operands, and whose results are those of the op."""
        rejected: dict[str, str] = {}
        if isinstance(ir_op.named_priority(), SizeRanges) and not self.examples.knows_sizes and _is_dynamic(arguments):
            fail(op, "its providers depend on a size that is not known here; specialize the module, or compile it")
        for impl, reason in ir_op.candidates([self._example(argument) for argument in arguments]):
            if reason is None and impl.inplace:
                reason = _unwritable(impl, arguments)
            if reason is None:
                traced = self._trace(impl, arguments, key)
                reason = _mismatch(traced, op)
                if reason is None:
                    reasons = {provider: StringAttr(text) for provider, text in rejected.items()}
                    return _Choice(StringAttr(impl.provider), DictionaryAttr(reasons) if reasons else None, traced)
            rejected[impl.provider] = reason
        fail(op, "no provider is left: " + "; ".join(f"{provider!r}: {text}" for provider, text in rejected.items()))

    def _example(self, argument: Argument) -> object:
        if isinstance(argument, SSAValue):
            return self.examples.tensor(_tensor_type(argument))
        if isinstance(argument, list):
            return [self.examples.tensor(_tensor_type(item)) for item in argument]
        return None if argument is None else decode(argument, [], str)

    def _trace(self, impl: IrOpImpl, arguments: list[Argument], key: _Key) -> Traced:
        def call(*operands: object) -> object:
            remaining = iter(operands)
            return impl.impl_fn(*(_fill(argument, remaining) for argument in arguments))

        types = [_tensor_type(value) for argument in arguments for value in _tensors(argument)]

        def trace() -> Traced:
            return trace_callable(call, types, self.examples, self.decompositions)

        # The decompositions are Inductor's, under a configuration that nobody here knows.
        if (store := current_store()) is None or self.decompositions is not None:
            return trace()
        return store.get(lambda: (impl.provider, impl.uuid(), _text(key)), types, self.examples, trace)

    def _record(self, op: Operation, ir_op: IrOp, choice: _Choice) -> None:
        node = op.location.desc.data if isinstance(op.location, NameLoc) else op.results[0].name_hint or "?"
        nodes = self.selected.setdefault(ir_op.name, {})
        name, count = node, 0
        while name in nodes:
            count += 1
            name = f"{node}_{count}"
        nodes[name] = choice.provider
        if choice.rejected is not None:
            self.rejected.setdefault(ir_op.name, {})[name] = choice.rejected


def _has_other_sizes(new: SSAValue, old: SSAValue) -> bool:
    return is_shaped(new.type) and is_shaped(old.type) and sizes_of(new.type) != sizes_of(old.type)


def _sees_layout(op: Operation) -> bool:
    """Whether the layout that the type of an operand records matters to an operation, or is passed on by it."""
    if not isinstance(op, CallOp) or op.updates is not None:
        return True
    target = resolve(op.target) if not op.target.startswith("python.") else None
    return not is_overload(target) or op_info(target).layout_sensitive or op_info(target).is_view


def _arguments(op: Operation, ir_op: IrOp) -> list[Argument]:
    """Arguments of the op in schema order: operands, lists of them, or attributes."""
    operands = iter(op.operands)
    arguments: list[Argument] = []
    for argument, segment in zip(ir_op.schema.arguments, operand_segments(op, ir_op), strict=True):
        if segment is None:
            arguments.append(op.properties.get(argument.name))
        elif isinstance(segment, bool):
            arguments.append(next(operands) if segment else None)
        else:
            arguments.append([next(operands) for _ in range(segment)])
    return arguments


def _key(op: Operation, arguments: list[Argument]) -> _Key:
    """What decides how an operation is lowered: its operands' types, its attributes, and what it has to give."""

    def part(argument: Argument) -> object:
        if isinstance(argument, SSAValue):
            return argument.type
        return tuple(item.type for item in argument) if isinstance(argument, list) else argument

    given = tuple(_kind(result.type) for result in op.results)
    return (op.name, *(part(argument) for argument in arguments), _aliasing(arguments), given)


def _text(part: object) -> str:
    """A part of a key as text; attributes print as they do in the IR."""
    return f"({', '.join(map(_text, cast(_Key, part)))})" if isinstance(part, tuple) else str(part)


def _aliasing(arguments: list[Argument]) -> tuple[int, ...]:
    """Which operands are the same value: an in-place implementation may treat them differently."""
    tensors = [value for argument in arguments for value in _tensors(argument)]
    return tuple(next(i for i, other in enumerate(tensors) if other is value) for value in tensors)


def _tensors(argument: Argument) -> list[SSAValue]:
    if isinstance(argument, SSAValue):
        return [argument]
    return argument if isinstance(argument, list) else []


def _is_dynamic(arguments: list[Argument]) -> bool:
    tensors = (value.type for argument in arguments for value in _tensors(argument))
    return any(isinstance(size, str) for kind in tensors for size in sizes_of(kind))


def _tensor_type(value: SSAValue) -> TensorType[Attribute]:
    if not is_tensor(value.type):
        raise TypeError(f"{value.type} is not a tensor")
    return value.type


def _fill(argument: Argument, remaining: Iterator[object]) -> object:
    if isinstance(argument, SSAValue):
        return next(remaining)
    if isinstance(argument, list):
        return [next(remaining) for _ in argument]
    return None if argument is None else decode(argument, [], str)


def _insert_before(new: Operation, op: Operation) -> None:
    block = op.parent
    if block is None:
        raise ValueError(f"{op.name} is not in a block")
    block.insert_op_before(new, op)


def _unwritable(impl: IrOpImpl, arguments: list[Argument]) -> str | None:
    """Why an implementation cannot write the operands that it may: an expanded one would be written more than once."""
    for index in impl.written_indices:
        value = arguments[index]
        if isinstance(value, SSAValue) and overlaps_itself(whole_window(_tensor_type(value))):
            return f"it writes operand {index}, whose elements share memory"
    return None


def _mismatch(traced: Traced, op: Operation) -> str | None:
    """How the results of an implementation differ from those of the op, layout aside; None if they do not."""
    values = traced.function.terminator.operands
    if len(values) != len(op.results):
        return f"returns {len(values)} results, the op has {len(op.results)}"
    for index, (value, result) in enumerate(zip(values, op.results, strict=True)):
        if _kind(value.type) != _kind(result.type):
            which = f" as result {index}" if len(values) > 1 else ""
            return f"returns {_kind_text(value.type)}{which}, the op gives {_kind_text(result.type)}"
    return None


def _kind(type: Attribute) -> tuple[Attribute, ...]:
    """Element type and shape of a tensor, in memory or not; another type as it is."""
    return (type.element_type, type.shape) if is_shaped(type) else (type,)


def _kind_text(type: Attribute) -> str:
    return str(TensorType(type.element_type, type.shape) if is_shaped(type) else type)


__all__ = ["REJECTED", "SELECTED", "LowerPass"]
