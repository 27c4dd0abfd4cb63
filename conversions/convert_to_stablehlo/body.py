"""Operations of a pure function, one after the other, as StableHLO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import NoReturn, TypeAlias

from torch._ops import OpOverload
from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.decompose import Decomposer, definition_of
from vllm_ir.conversions.convert_to_stablehlo.device_kernels import KERNELS, convert_kernel
from vllm_ir.conversions.convert_to_stablehlo.integers import INTEGER_CONVERSIONS
from vllm_ir.conversions.convert_to_stablehlo.table import CONVERSIONS, HIGHER_ORDER, REJECTIONS
from vllm_ir.conversions.errors import describe, fail
from vllm_ir.conversions.trace import Traced
from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.torch.constant import ConstantOp
from vllm_ir.dialects.vllm_ir.function import FuncOp, ReturnOp
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.dialects.vllm_ir.types import BufferType, contiguous_strides, shape_of, sizes_of, strides_of
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.importer import MAIN
from vllm_ir.frontends.fx.schemas import op_info, resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.fx.values import decode
from vllm_ir.frontends.ops.custom_definitions import NATIVE, DefinitionError

Values: TypeAlias = dict[SSAValue, SSAValue]
STATIC_SIZES = (
    'only static sizes are converted: run specialize{sizes="s0=16"} first, with your symbols, or compile with '
    "dynamic=False"
)
_EXTERNAL = (
    "it neither returns nor writes anything by its schema, so what it does is outside of the program, where StableHLO "
    "does not reach; call it around the compiled program"
)
_DEEPEST = 20
"""Decompositions inside each other; more means that one leads back to itself."""


class BodyConversion:
    """Converts the operations of blocks; what is decomposed is traced once for equal operands."""

    def __init__(self, builder: Builder, functions: Mapping[str, FuncOp]) -> None:
        self.b = builder
        self.functions = functions
        self.decomposer = Decomposer()
        self._outer: list[Operation] = []
        """Operations of the program whose decomposition is being converted."""
        self._calling: list[str] = [MAIN]
        """Functions whose bodies are being converted."""

    def block(self, block: Block, values: Values) -> list[SSAValue]:
        """Convert all operations of a block; gives what it returns. `values` has its arguments, and takes results."""
        for op in block.ops:
            if isinstance(op, ReturnOp):
                return [values[operand] for operand in op.operands]
            if not self._outer:
                self.b.location = op.location
            self._convert(op, values)
        raise ValueError("the block has no vllm_ir.return")

    def call_function(self, name: str, operands: Sequence[SSAValue]) -> list[SSAValue]:
        """Convert the body of a function of the module for these operands; `Rejected` if it does not take them."""
        function, location = self.functions.get(name), self.b.location
        if function is None or name in self._calling:
            raise Rejected(f"there is no function @{name}" if function is None else f"@{name} calls itself")
        taken = [self.b.plain(kind) for kind in function.block.arg_types]
        if [operand.type for operand in operands] != taken:
            raise Rejected(f"@{name} does not take the operands that it is given")
        self._calling.append(name)
        results = self.block(function.block, dict(zip(function.block.args, operands, strict=True)))
        self._calling.pop()
        self.b.location = location
        return results

    def _convert(self, op: Operation, values: Values) -> None:
        if isinstance(op, CallOp):
            results = self._call(op, values)
        elif isinstance(op, ConstantOp):
            data = bytes.fromhex(op.data.data)
            results = (self.b.constant(data, self.b.plain(op.result.type)),)
        elif isinstance(op, RelayoutOp):
            results = (values[op.operands[0]],)
        elif (integer := INTEGER_CONVERSIONS.get(type(op))) is not None:
            results = (integer(self.b, *(values[operand] for operand in op.operands)),)
        elif isinstance(op, arith.ConstantOp):
            results = (self._constant(op),)
        elif op.has_trait(OperandEffects):
            results = self._high_level(op, values)
        else:
            self._reject(op, "it is about memory, not about values; run alias-outputs,functionalize first")
        for old, new in zip(op.results, results, strict=True):
            values[old] = new

    def _constant(self, op: arith.ConstantOp) -> SSAValue:
        value = op.value
        if not isinstance(value, IntegerAttr):
            self._reject(op, f"the constant {value} is not an integer")
        return self.b.scalar(value.value.data, value.type)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _call(self, op: CallOp, values: Values) -> Sequence[SSAValue]:
        if op.target.startswith(KERNELS):
            return self._direct(op, convert_kernel, [values[operand] for operand in op.operands])
        operands = [values[operand] for operand in op.operands]
        if op.target.startswith("higher_order."):
            return self._higher_order(op, operands)
        if op.updates is not None:
            return self._decomposed(op, operands)
        if (reason := REJECTIONS.get(op.target)) is not None:
            self._reject(op, reason)
        if (convert := CONVERSIONS.get(op.target)) is not None:
            return self._direct(op, convert, operands)
        return self._decomposed(op, operands)

    def _direct(self, op: CallOp, convert: Converter, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        args = [decode(tree, operands, str) for tree in op.args.data]
        keywords = {} if op.kwargs is None else {k: decode(v, operands, str) for k, v in op.kwargs.data.items()}
        self._expect(op)
        expected = self.b.results
        try:
            given = convert(self.b, *args, **keywords)
        except Rejected as error:
            self._reject(op, str(error))
        except (LookupError, ArithmeticError, TypeError, ValueError) as error:
            # Converters take what eager takes. Fake kernels let more through: dimensions that are not there, say.
            self._reject(op, f"its arguments do not fit together: {type(error).__name__}: {error}")
        results = (given,) if isinstance(given, SSAValue) else given
        _check(op, results, expected)
        return results

    def _expect(self, op: Operation) -> None:
        self.b.source = op
        try:
            self.b.results = results = [self.b.plain(result.type) for result in op.results]
        except Rejected as error:
            self._reject(op, str(error))
        for index, (kind, result) in enumerate(zip(results, op.results, strict=True)):
            if DYNAMIC_INDEX in kind.get_shape():
                symbols = "x".join(map(str, sizes_of(result.type)))
                self._reject(
                    op,
                    f"result {index} has the dynamic shape {symbols}; StableHLO is made for static sizes: compile with "
                    "dynamic=False, or import with example inputs of the size to specialise to; where a size depends "
                    "on elements, keep all of them and select with torch.where",
                )

    def _higher_order(self, op: CallOp, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        convert = HIGHER_ORDER.get(op.target)
        if convert is None or op.updates is not None:
            self._reject(op, f"this control flow has no conversion; converted are {', '.join(HIGHER_ORDER)}")
        args = [decode(tree, operands, str) for tree in op.args.data]
        self._expect(op)
        expected = self.b.results
        try:
            call = signature(convert).bind(self.b, self.call_function, *args)
        except TypeError as error:
            self._reject(op, f"its arguments are not those of the operator: {error}")
        try:
            results = convert(*call.args)
        except Rejected as error:
            self._reject(op, str(error))
        _check(op, results, expected)
        return results

    # --- decomposition ---------------------------------------------------------------------------------------------

    def _decomposed(self, op: CallOp, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        target = None if op.target.startswith("python.") else resolve(op.target)
        if not is_overload(target):
            self._reject(op, "a function of Python on symbolic values has no StableHLO form")
        self._expect(op)
        if op.updates is not None or definition_of(op, target) is not None:
            return self._written(op, target, operands)
        try:
            traced = self.decomposer.call(op, target)
        except FxImportError as error:
            self._reject(op, f"its decomposition cannot be traced: {_reason(error)}")
        except Rejected as error:
            self._reject(op, str(error))
        if traced is None:
            self._reject(op, _no_conversion(target))
        return self._inlined(op, traced, operands)

    def _written(self, op: CallOp, target: OpOverload, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """What a custom operator, or one that updates operands, does: its new results, then the new contents."""
        if op.external is not None:
            self._reject(op, _EXTERNAL)
        try:
            traced = self.decomposer.writing(op, target)
        except DefinitionError as error:
            self._reject(op, f"what it does is not what it declares: it {error.reason}")
        except (FxImportError, PassFailedException) as error:
            self._reject(op, f"what it does in Python cannot be traced on tensors without data: {_reason(error)}")
        except Rejected as error:
            self._reject(op, str(error))
        if traced is None:
            self._reject(op, _no_conversion(target))
        self._check_definition(op, target, traced)
        values = self._within(op, traced, operands)
        finals = [(index, traced.finals[index]) for index in op.update_indices]
        updated = [operands[index] if final is None else values[final] for index, final in finals]
        return [*(values[value] for value in traced.results), *updated]

    def _check_definition(self, op: CallOp, target: OpOverload, traced: Traced) -> None:
        """The definition writes no more than the operator declares, and gives the results that the IR states."""
        for index, final in enumerate(traced.finals):
            if final is not None and index not in op.update_indices:
                name = _argument(op, target, index)
                self._reject(
                    op,
                    f"what it does is not what it declares: it writes argument {name}, which its schema does not mark "
                    "as written; name it in mutates_args",
                )
        given, stated = traced.results, op.results[: len(op.results) - len(op.update_indices)]
        if len(given) != len(stated):
            self._reject(op, f"it gives {len(given)} new tensors by what it does, the call states {len(stated)}")
        for number, (one, other) in enumerate(zip(given, stated, strict=True)):
            if not _same_tensor(one.type, other.type):
                self._reject(
                    op, f"result {number} is {one.type} by what it does, {other.type} by its fake implementation"
                )

    def _high_level(self, op: Operation, values: Values) -> Sequence[SSAValue]:
        if any(isinstance(operand.type, BufferType) for operand in op.operands):
            self._reject(op, "has buffers as operands; run functionalize first")
        self._expect(op)
        try:
            traced = self.decomposer.high_level(op)
        except FxImportError as error:
            self._reject(op, f"its native definition cannot be traced: {_reason(error)}")
        except Rejected as error:
            self._reject(op, str(error))
        return self._inlined(op, traced, [values[operand] for operand in op.operands])

    def _inlined(self, op: Operation, traced: Traced, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """Convert a traced definition in the place of `op`; results have the element types that eager gives them."""
        values = self._within(op, traced, operands)
        results = [values[operand] for operand in traced.function.terminator.operands]
        if len(results) != len(op.results):
            self._reject(op, f"PyTorch's decomposition has {len(results)} results, the operator {len(op.results)}")
        return [self._as_stated(op, value, result.type) for value, result in zip(results, op.results, strict=True)]

    def _within(self, op: Operation, traced: Traced, operands: Sequence[SSAValue]) -> Values:
        """The values of a traced definition in the place of `op`, of which locations and errors speak."""
        values: Values = dict(zip(traced.function.block.args, operands, strict=True))
        if len(self._outer) >= _DEEPEST:
            self._reject(op, "its decomposition does not come to an end")
        self._outer.append(op)
        self.block(traced.function.block, values)
        self._outer.pop()
        return values

    def _as_stated(self, op: Operation, value: SSAValue, kind: Attribute) -> SSAValue:
        """A result with the element type that eager gives it; decompositions may differ in that."""
        expected = self.b.plain(kind)
        if value.type == expected:
            return value
        if shape_of(value.type) != expected.get_shape():
            self._reject(op, f"PyTorch's decomposition gives {value.type}, the operator {expected}")
        return self.b.convert(value, expected.element_type)

    def _reject(self, op: Operation, reason: str) -> NoReturn:
        """Stop at the user's operation; one inside its decomposition is named as well."""
        if not self._outer:
            fail(op, reason)
        fail(self._outer[0], f"it is defined by {describe(op)}, which cannot be converted: {reason}")


def _check(op: Operation, results: Sequence[SSAValue], expected: Sequence[Attribute]) -> None:
    """The types of results are those that the IR states: the rest of the function relies on it."""
    for value, kind in zip(results, expected, strict=True):
        if value.type is not kind and value.type != kind:
            raise TypeError(f"{describe(op)} was converted to {value.type}, expected {kind}")


def _same_tensor(stated: Attribute, given: Attribute) -> bool:
    """Whether two results have the same element type, shape and, where it shows, strides; or are the same number."""
    if not is_tensor(stated) or not is_tensor(given):
        return stated == given
    if stated.element_type != given.element_type or stated.get_shape() != given.get_shape():
        return False
    steps = [strides_of(kind) or contiguous_strides(stated.get_shape()) for kind in (stated, given)]
    return all(one == other for size, one, other in zip(stated.get_shape(), *steps, strict=True) if size > 1)


def _argument(op: CallOp, target: OpOverload, index: int) -> str:
    """The name of the argument that an operand is, or is an item of."""
    arguments = zip(op_info(target).arguments, op.arguments(), strict=False)
    return next(argument.name for argument, tree in arguments if index in operand_indices([tree]))


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, FxImportError) else str(error)


def _no_conversion(target: OpOverload) -> str:
    info = op_info(target)
    if info.random:
        return "it draws random numbers, which a StableHLO program would draw differently; pass them in as an argument"
    if target.namespace not in NATIVE:
        return (
            f"it is a custom operator {'that writes its operands ' if info.writes else ''}without a definition in "
            "Python to look into; give it one (torch.library.custom_op, vllm_ir.register_op), or call it as a device "
            "kernel"
        )
    if info.writes:
        return "it writes its operands, and has no functional form to convert; write it with operators that return"
    return "it has no StableHLO form; write it with operators that docs/stablehlo.md lists"
