"""What operators without a conversion of their own consist of.

A high-level operation is its native definition; an ATen operator is what PyTorch's own decompositions make of it, down
to operators that have a conversion; a custom operator is what its Python function does. All are traced on the operands'
types, once for equal ones. Definitions that write their operands are traced as programs that do, and made pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import cast

from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table  # pyright: ignore[reportUnknownVariableType]  # no types
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Rejected
from vllm_ir.conversions.convert_to_stablehlo.table import CONVERSIONS
from vllm_ir.conversions.trace import Decompositions, Examples, Traced, trace_callable
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import device_of
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.schemas import target_name
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.fx.values import decode
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.custom_definitions import Definition, composite_definition, new_results, python_definition
from vllm_ir.frontends.ops.dialect import call_arguments


@cache
def decompositions() -> Decompositions:
    """PyTorch's decompositions of the operators that have no conversion, the core ones before others."""
    # PyTorch declares the functions in its tables with unknown parameters.
    every = cast("Mapping[object, Callable[..., object]]", decomposition_table)
    core = cast("Mapping[object, Callable[..., object]]", core_aten_decompositions())
    return {
        target: function
        for target, function in {**every, **core}.items()
        if is_overload(target) and target_name(target) not in CONVERSIONS
    }


class Decomposer:
    """Traces definitions of operations."""

    def __init__(self) -> None:
        self.examples = Examples()
        self.traces: dict[tuple[object, ...], Traced | None] = {}

    def call(self, op: CallOp, target: OpOverload) -> Traced | None:
        """What a call consists of; None if PyTorch has no decomposition of its operator.

        Raises `Rejected` if an operand is no tensor, and what tracing raises.
        """
        types = _tensor_types(op.operands)
        key = (op.target, op.args, op.kwargs, *types)
        if key not in self.traces:
            self.traces[key] = self._first(op, target, None, types)
        return self.traces[key]

    def writing(self, op: CallOp, target: OpOverload) -> Traced | None:
        """What a call of an operator that is no function of values consists of; None if nothing is known of it.

        That is a custom operator, or one that updates operands. Raises as `call`, `DefinitionError` for a definition
        that does not keep to its schema, and `PassFailedException` for one that no function of values can stand for.
        """
        types = _tensor_types(op.operands)
        key = (op.target, op.args, op.kwargs, op.updates, *types)
        if key not in self.traces:
            self.traces[key] = self._first(op, target, definition_of(op, target), types)
        return self.traces[key]

    def _first(
        self, op: CallOp, target: OpOverload, own: Definition | None, types: Sequence[TensorType[Attribute]]
    ) -> Traced | None:
        """The trace of the first of the known definitions that does not lead back to the operator."""
        if own is not None:
            return self._traced(op, target, own, types)
        traced = self._traced(op, target, target, types)
        composite = composite_definition(target)
        if traced is not None or composite is None:
            return traced
        try:
            return self._traced(op, target, composite, types)
        except FxImportError:
            return None  # a kernel that is more than calls of other operators: nothing is known of it

    def _traced(
        self, op: CallOp, target: OpOverload, definition: Definition, types: Sequence[TensorType[Attribute]]
    ) -> Traced | None:
        writing = definition is not target or op.updates is not None
        call = partial(_call, op, definition)
        results = partial(_new_results, target, call) if writing else partial(_fresh, call)
        traced = trace_callable(results, types, self.examples, decompositions(), pure=writing)
        inner = [inner.target for inner in traced.function.block.ops if isinstance(inner, CallOp | ViewOp)]
        return None if op.target in inner else traced

    def high_level(self, op: Operation) -> Traced:
        """What the native definition of a high-level operation consists of; raises what tracing raises."""
        ir_op = ops[op.name.removeprefix("vllm_ir.")]
        types = _tensor_types(op.operands)
        static = tuple(sorted((name, value) for name, value in op.properties.items() if name != "donated"))
        key = (op.name, static, *types)
        if key not in self.traces:

            def call(operands: Sequence[object]) -> object:
                return ir_op.native(*call_arguments(op, ir_op, iter(operands)))

            self.traces[key] = trace_callable(partial(_fresh, call), types, self.examples, decompositions())
        traced = self.traces[key]
        if traced is None:
            raise TypeError(f"{op.name} has no native definition")
        return traced


def definition_of(op: CallOp, target: OpOverload) -> Definition | None:
    """The definition of a custom operator that holds where the operands of a call are."""
    devices = [device_of(operand.type) for operand in op.operands if is_tensor(operand.type)]
    return python_definition(target, devices[0] if devices else "cpu")


def _call(op: CallOp, function: Callable[..., object], operands: Sequence[object]) -> object:
    """What `function` returns for the arguments of a call."""
    args = [decode(tree, operands, str) for tree in op.args.data]
    keywords = {} if op.kwargs is None else dict(op.kwargs.data)
    return function(*args, **{name: decode(tree, operands, str) for name, tree in keywords.items()})


def _fresh(call: Callable[[Sequence[object]], object], *operands: object) -> object:
    """Copies of results, so that what is traced is a function of values even where it returns views."""
    return tree_map_only(Tensor, Tensor.clone, call(operands))


def _new_results(target: OpOverload, call: Callable[[Sequence[object]], object], *operands: object) -> object:
    return new_results(target, operands, call(operands))


def _tensor_types(operands: Sequence[SSAValue]) -> list[TensorType[Attribute]]:
    types: list[TensorType[Attribute]] = []
    for operand in operands:
        if not is_tensor(operand.type):
            raise Rejected(f"it takes %{operand.name_hint or '?'}, a number that is known only when the program runs")
        types.append(operand.type)
    return types


__all__ = ["Decomposer", "decompositions", "definition_of"]
