"""`alias-outputs`: which output is which argument, and mutated arguments as further outputs.

Functional devices have no writes: they are told that an output takes the place of an input. This pass states it, from
storages and windows alone (`dialects/vllm_ir/outputs.py` has the form). The function still writes; `functionalize`
makes the outputs values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, SymbolRefAttr, i64
from xdsl.ir import Attribute, BlockArgument, SSAValue

from vllm_ir.conversions.analysis.regions import covers, may_overlap
from vllm_ir.conversions.analysis.windows import ViewWindows
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.rewrites import LimitedPass
from vllm_ir.dialects.torch.arguments import OperandAttr, TupleAttr, leaves
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import (
    ALIASES,
    DONATED,
    MUTATED,
    ORIGINAL_OUTPUT_COUNT,
    OUTPUT_VIEW,
    STORAGE,
    WINDOW,
    FuncOp,
    root_of,
    written_buffers,
)
from vllm_ir.dialects.vllm_ir.high_level import donated_indices
from vllm_ir.dialects.vllm_ir.memory import ReadOp, ViewOp
from vllm_ir.dialects.vllm_ir.outputs import final_type, output_view
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, sizes_of, strides_of
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import static_window
from vllm_ir.frontends.fx.values import operand_reference


@dataclass(frozen=True)
class AliasOutputsPass(LimitedPass):
    """State which outputs are which arguments; mutated arguments that no output is become outputs.

    With `limit`, that many functions are marked: the facts of one function hold together or not at all.
    """

    name = "alias-outputs"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrites = self.start()
        functions = [function for function in op.body.block.ops if isinstance(function, FuncOp)]
        called = _called(functions) if len(functions) > 1 else set[str]()
        for function in functions:
            # Operands of sub-graphs are seen by nobody outside.
            if function.sym_name.data in called or ORIGINAL_OUTPUT_COUNT in function.attributes:
                continue
            if function.functional is not None:
                fail(
                    function, f"@{function.sym_name.data} is functional already; run alias-outputs before functionalize"
                )
            if rewrites.take(function.terminator, f"gets the alias facts of @{function.sym_name.data}"):
                _AliasOutputs(function).run()


def _called(functions: Iterable[FuncOp]) -> set[str]:
    """Names of functions that calls refer to."""
    return {
        leaf.root_reference.data
        for function in functions
        for op in function.block.ops
        if isinstance(op, CallOp)
        for leaf in leaves(op.args.data)
        if isinstance(leaf, SymbolRefAttr)
    }


class _AliasOutputs:
    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self.arguments = list(function.block.args)
        self.attributes = [function.argument_attributes(index) for index in range(len(self.arguments))]
        self.groups: dict[Attribute, list[int]] = {}
        for index, attributes in enumerate(self.attributes):
            if (number := attributes.get(STORAGE)) is not None:
                self.groups.setdefault(number, []).append(index)
        terminator = function.terminator
        self.b = CallBuilder(lambda op: function.block.insert_op_before(op, terminator))
        self.b.at(terminator)
        self.windows = ViewWindows(function)
        self.aliased: set[int] = set()

    def run(self) -> None:
        terminator = self.function.terminator
        outputs: list[SSAValue | Attribute] = []
        facts: list[dict[str, Attribute]] = []
        for leaf in leaves([terminator.structure]):
            if not isinstance(leaf, OperandAttr):
                outputs.append(leaf)
                continue
            value, fact = self._output(terminator.operands[leaf.index.data])
            outputs.append(value)
            facts.append(fact)
        count = len(outputs)
        for index in self._changed():
            outputs.append(self._final(self.arguments[index]))
            facts.append({ALIASES: IntegerAttr(index, i64)})
        self._return(outputs)
        self.function.set_result_attributes(facts)
        self.function.attributes[ORIGINAL_OUTPUT_COUNT] = IntegerAttr(count, i64)
        self.function.update_type()

    def _return(self, outputs: list[SSAValue | Attribute]) -> None:
        """Return a flat tuple; a value that is two outputs is two operands."""
        operands = [output for output in outputs if isinstance(output, SSAValue)]
        numbers = iter(range(len(operands)))
        items = [operand_reference(next(numbers)) if isinstance(o, SSAValue) else o for o in outputs]
        self.function.terminator.operands = operands
        self.function.terminator.properties["structure"] = TupleAttr(ArrayAttr(items))

    # Outputs of the program

    def _output(self, value: SSAValue) -> tuple[SSAValue, dict[str, Attribute]]:
        """An output and what it is."""
        root = root_of(value) if isinstance(value.type, BufferType) else None
        if not isinstance(root, BlockArgument):
            return value, {}
        if isinstance(value, BlockArgument):
            value = self._final(value)
        if not self._shows_memory(value):
            # The caller gets a tensor that reads the memory in another way; the type of a window cannot say that.
            return self._read(value), {}
        for index in self._sharing(root):
            same = final_type(self.arguments[index].type, self.attributes[index]) == value.type
            if same and index not in self.aliased and DONATED not in self.attributes[index]:
                self.aliased.add(index)
                return value, {ALIASES: IntegerAttr(index, i64)}
        if DONATED in self.attributes[root.index] or not isinstance(value.type, BufferType):
            fail(self.function.terminator, f"returns memory of argument {root.index}, which is donated")
        return value, {OUTPUT_VIEW: output_view(root.index, value.type)}

    def _sharing(self, root: BlockArgument) -> Sequence[int]:
        """Arguments in the storage of an argument, itself among them, in order."""
        number = self.attributes[root.index].get(STORAGE)
        return [root.index] if number is None else self.groups[number]

    def _shows_memory(self, value: SSAValue) -> bool:
        """Whether a window holds what its memory holds, and not the conjugate or the negative of it."""
        conjugated = negated = False
        while not isinstance(value, BlockArgument):
            owner = value.owner
            if isinstance(owner, ViewOp):
                overload, base = resolve(owner.target), owner.base.type
                if is_overload(overload) and isinstance(base, BufferType) and len(owner.operands) == 1:
                    conjugates, negates = self.windows.negations(overload, owner.args, base)
                    conjugated, negated = conjugated != conjugates, negated != negates
                value = owner.base
            elif isinstance(owner, CallOp) and owner.returns is not None:
                index = next(i for i, result in enumerate(owner.results) if result is value)
                value = owner.operands[owner.return_indices[index]]
            else:
                break
        return not conjugated and not negated

    def _read(self, value: SSAValue) -> SSAValue:
        if not isinstance(value.type, BufferType):
            return value
        return self.b.add(ReadOp.create(operands=[value], result_types=[value.type.tensor])).results[0]

    # Mutated arguments

    def _final(self, argument: BlockArgument) -> SSAValue:
        """The window that the caller has of an argument behind the call."""
        window = self.attributes[argument.index].get(WINDOW)
        if not isinstance(window, BufferType):
            return argument
        if static_window(window) is None:
            fail(self.function.terminator, f"argument {argument.index} gets a window of dynamic size: {window}")
        sizes, strides = list(sizes_of(window)), list(strides_of(window) or ())
        return self.b.view(torch.ops.aten.as_strided.default, [argument, sizes, strides, offset_of(window)], window)

    def _changed(self) -> list[int]:
        """Arguments that the program changes and that no output is."""
        ops = list(self.function.block.ops)
        written = _by_argument(buffer for op in ops for buffer in written_buffers(op))
        donated = _by_argument(op.operands[index] for op in ops for index in donated_indices(op))
        return [
            index
            for index, argument in enumerate(self.arguments)
            if index not in self.aliased
            and isinstance(argument.type, BufferType)
            and self._is_changed(argument, argument.type, written, donated)
        ]

    def _is_changed(
        self,
        argument: BlockArgument,
        kind: BufferType,
        written: Mapping[int, Sequence[BufferType]],
        donated: Mapping[int, Sequence[BufferType]],
    ) -> bool:
        """Whether the caller finds something else in an argument that it may look at.

        Memory that was given away holds nothing that anybody may look at.
        """
        attributes, sharing = self.attributes[argument.index], self._sharing(argument)
        given = [window for index in sharing for window in donated.get(index, ())]
        if DONATED in attributes or any(covers(window, kind) for window in given):
            return False
        if argument.index in written or WINDOW in attributes:
            return True
        if MUTATED in attributes and argument.index not in donated:
            return True  # by the signature's word
        return any(may_overlap(window, kind) for index in sharing for window in written.get(index, ()))


def _by_argument(buffers: Iterable[SSAValue]) -> dict[int, list[BufferType]]:
    """Windows of buffers onto the storage of each argument."""
    found: dict[int, list[BufferType]] = {}
    for buffer in buffers:
        if isinstance(buffer.type, BufferType) and isinstance(root := root_of(buffer), BlockArgument):
            found.setdefault(root.index, []).append(buffer.type)
    return found
