"""Python callables as functions of the IR: traced, functionalized, and kept for the next call with the same types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, NoneAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from vllm_ir.conversions.alias_outputs import AliasOutputsPass
from vllm_ir.conversions.functionalize import FunctionalizePass
from vllm_ir.dialects.vllm_ir.function import FuncOp, ReturnOp
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.outputs import output_items
from vllm_ir.dialects.vllm_ir.types import Dimensions, LayoutAttr
from vllm_ir.frontends.fx.attributes import ModuleTensors
from vllm_ir.frontends.fx.fakes import InputSource, ambient_fake_mode
from vllm_ir.frontends.fx.importer import MAIN, import_normalized
from vllm_ir.frontends.fx.normalize import trace_normalized
from vllm_ir.frontends.fx.symbols import Symbols, example_tensor
from vllm_ir.frontends.fx.types import is_tensor

Decompositions: TypeAlias = Mapping[OpOverload, Callable[..., object]]


def inductor_decompositions() -> Decompositions:
    """The table by which Inductor takes operators apart."""
    from torch._inductor.decomposition import select_decomp_table  # loads Inductor

    return select_decomp_table()


@dataclass(frozen=True)
class Traced:
    """A traced callable: a functional function of tensors.

    `finals` gives the value that each argument has at the end; None for arguments that are not written.
    """

    function: FuncOp
    finals: tuple[SSAValue | None, ...]
    complete: bool = False
    """Whether the function is all of it: it needs no constants and no other functions."""

    @cached_property
    def arguments(self) -> Sequence[SSAValue]:
        """What stands for the tensors that it takes."""
        return self.function.block.args

    @cached_property
    def returned(self) -> Sequence[SSAValue]:
        """What its `return` has, new contents of arguments included."""
        return self.function.terminator.operands

    @cached_property
    def body(self) -> list[Operation]:
        """What computes or reads: all operations but views and writes, which `finals` and values say in other words."""
        skipped = (ViewOp, AllocOp, WriteOp, ReturnOp)
        return [op for op in self.function.block.ops if not isinstance(op, skipped)]

    @property
    def results(self) -> list[SSAValue]:
        """The values that the callable returns, without new contents of arguments, and without None and constants."""
        terminator, count = self.function.terminator, self.function.original_output_count
        if count is None:
            return list(terminator.operands)
        return [terminator.operands[item] for item in output_items(terminator)[:count] if item is not None]


class Examples:
    """Fake operands for one module: where a compilation is running, over its symbols."""

    def __init__(self) -> None:
        ambient = ambient_fake_mode()
        self.knows_sizes = ambient is not None
        """Whether symbolic sizes have values, those of the call that is compiled for, which guards can keep to."""
        self.mode = ambient or FakeTensorMode(shape_env=ShapeEnv(), static_shapes=False)
        self.symbols = Symbols(self.mode)

    def tensor(self, kind: TensorType[Attribute]) -> object:
        """A fake tensor of a type."""
        with self.mode:
            return example_tensor(kind, None, self.symbols, {})

    def original(self, kind: Attribute) -> Attribute:
        """A type of a traced function with the names that its symbols have in the module."""
        if not is_tensor(kind) or not isinstance(kind.encoding, LayoutAttr):
            return kind
        renamed = self.symbols.renamed()
        if not renamed:
            return kind
        sizes, strides = _rename(kind.encoding.sizes, renamed), _rename(kind.encoding.strides, renamed)
        return TensorType(kind.element_type, kind.shape, LayoutAttr(sizes, strides, kind.encoding.device))


def _rename(field: Dimensions | NoneAttr, names: Mapping[str, str]) -> Dimensions | NoneAttr:
    if isinstance(field, NoneAttr):
        return field
    items = [
        StringAttr(re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), item.data))
        if isinstance(item, StringAttr)
        else item
        for item in field.data
    ]
    return ArrayAttr(items)


def trace_callable(
    function: Callable[..., object],
    types: Sequence[TensorType[Attribute]],
    examples: Examples,
    decompositions: Decompositions | None = None,
    *,
    pure: bool = False,
    passes: Sequence[ModulePass] = (),
) -> Traced:
    """`function`, a callable of tensors, traced on operands of these types.

    What it writes to its operands becomes `finals`. `pure` makes a function of values alone: its arguments are tensors,
    and new contents of arguments are further results; `passes` then simplify it. Raises `FxImportError` where tracing
    fails, and `PassFailedException` where what it does cannot be functionalized.
    """
    sources = [InputSource(f"arg{index}", examples.tensor(kind), True, None) for index, kind in enumerate(types)]
    normalized = trace_normalized(function, sources, ModuleTensors(), decompositions)
    module = import_normalized(normalized)
    if pure:
        AliasOutputsPass().apply(Context(), module)
    FunctionalizePass().apply(Context(), module)
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    traced = next(op for op in functions if op.sym_name.data == MAIN)
    if pure:
        for entry in passes:
            entry.apply(Context(), module)
        return Traced(traced, _appended(traced))
    return as_traced(traced, complete=len(functions) == 1 and not normalized.constants and not normalized.attributes)


def as_traced(function: FuncOp, *, complete: bool = True) -> Traced:
    """A functional function, with the values that it writes to its arguments as finals."""
    finals: list[SSAValue | None] = [None] * len(function.block.args)
    for op in function.block.ops:
        if isinstance(op, WriteOp):
            for index, argument in enumerate(function.block.args):
                if op.buffer is argument:
                    finals[index] = op.value
    return Traced(function, tuple(finals), complete)


def _appended(function: FuncOp) -> tuple[SSAValue | None, ...]:
    """For each argument of a pure function the result that is its new contents."""
    finals: list[SSAValue | None] = [None] * len(function.block.args)
    items = output_items(function.terminator)
    for output, argument in function.io_map.items():
        item = items[output]
        if item is not None:
            finals[argument] = function.terminator.operands[item]
    return tuple(finals)
