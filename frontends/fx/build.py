"""Building calls of PyTorch operators in passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch._ops import OpOverload
from xdsl.dialects import arith
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, DictionaryAttr, IntegerAttr, LocationAttr, UnknownLoc, i64
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.dialects.torch.arguments import OperandAttr, TupleAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType, shape_of
from vllm_ir.frontends.fx.binding import call_properties
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.values import encode, operand_reference

_UNKNOWN = UnknownLoc()


class CallBuilder:
    """Builds operations and hands each to `insert`; all get the current `location` and `name`."""

    def __init__(self, insert: Callable[[Operation], None]) -> None:
        self.insert = insert
        self.location: LocationAttr = _UNKNOWN
        self.name: str | None = None

    def at(self, op: Operation) -> None:
        """Continue with the location and name of `op`."""
        self.location = op.location
        self.name = op.results[0].name_hint if op.results else None

    def add(self, op: Operation) -> Operation:
        """Insert an operation."""
        op.location = self.location
        for result in op.results:
            if result.name_hint is None:
                result.name_hint = self.name
        self.insert(op)
        return op

    def call(
        self, overload: OpOverload, args: Sequence[object], types: Sequence[Attribute], **keywords: object
    ) -> CallOp:
        """Call `overload`; arguments are SSA values, Python values or attributes, in schema order by position."""
        info = op_info(overload)
        operands: list[SSAValue] = []
        bound = list(args)
        for argument in info.arguments[len(args) :]:
            if argument.name not in keywords and not argument.has_default:
                raise FxImportError(f"argument {argument.name!r} of {overload} is missing")
            bound.append(keywords.get(argument.name, argument.default))
        trees = [self.encode(argument, operands) for argument in bound]
        op = CallOp.create(
            operands=operands, result_types=types, properties=call_properties(str(overload), info, trees)
        )
        self.add(op)
        return op

    def value(self, overload: OpOverload, args: Sequence[object], result: Attribute, **keywords: object) -> SSAValue:
        """The only result of a call."""
        return self.call(overload, args, [result], **keywords).results[0]

    def view(self, overload: OpOverload, args: Sequence[object], window: BufferType) -> SSAValue:
        """A window onto the buffer `args[0]`."""
        operands: list[SSAValue] = []
        bound = [*args, *(argument.default for argument in op_info(overload).arguments[len(args) :])]
        trees = [self.encode(argument, operands) for argument in bound]
        properties = call_properties(str(overload), op_info(overload), trees)
        return self.add(ViewOp.create(operands=operands, result_types=[window], properties=properties)).results[0]

    def encode(self, value: object, operands: list[SSAValue]) -> Attribute:
        """An argument as a tree over `operands`, which grows by the operands that are new."""

        def operand(item: object) -> Attribute | None:
            if isinstance(item, SSAValue):
                for index, known in enumerate(operands):
                    if known is item:
                        return operand_reference(index)
                operands.append(cast(SSAValue, item))
                return operand_reference(len(operands) - 1)
            return item if isinstance(item, Attribute) else None

        return encode(value, operand)

    def integer(self, value: int | SSAValue) -> SSAValue:
        """An integer as an SSA value."""
        if isinstance(value, SSAValue):
            return value
        return self.add(arith.ConstantOp(IntegerAttr(value, i64))).results[0]

    def product(self, factors: Sequence[int | SSAValue]) -> int | SSAValue:
        """Product of integers, folded where they are known."""
        known = 1
        result: SSAValue | None = None
        for factor in factors:
            if isinstance(factor, int):
                known *= factor
            elif result is None:
                result = factor
            else:
                result = self.add(arith.MuliOp.create(operands=[result, factor], result_types=[i64])).results[0]
        if result is None:
            return known
        if known == 1:
            return result
        return self.add(arith.MuliOp.create(operands=[result, self.integer(known)], result_types=[i64])).results[0]

    def sum(self, left: int | SSAValue, right: int | SSAValue) -> int | SSAValue:
        """Sum of two integers, folded where they are known."""
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if left == 0 or right == 0:
            return right if left == 0 else left
        operands = [self.integer(left), self.integer(right)]
        return self.add(arith.AddiOp.create(operands=operands, result_types=[i64])).results[0]

    def sizes(self, value: SSAValue) -> list[int | SSAValue]:
        """Sizes of a tensor, as integers where they are static."""
        return [
            size if size != DYNAMIC_INDEX else self.value(torch.ops.aten.sym_size.int, [value, dimension], i64)
            for dimension, size in enumerate(shape_of(value.type))
        ]


def python_argument(tree: Attribute, operands: Sequence[SSAValue]) -> object:
    """An argument tree with references replaced by the operands themselves; static leaves stay attributes."""
    match tree:
        case OperandAttr():
            return operands[tree.index.data]
        case ArrayAttr():
            return [python_argument(item, operands) for item in tree.data]
        case TupleAttr():
            return tuple(python_argument(item, operands) for item in tree.items.data)
        case DictionaryAttr():
            return {key: python_argument(item, operands) for key, item in tree.data.items()}
        case _:
            return tree


def integer_argument(value: object) -> int | SSAValue:
    """An integer argument: known, or an SSA value."""
    if isinstance(value, IntegerAttr):
        return value.value.data
    if isinstance(value, int):
        return value
    if isinstance(value, SSAValue):
        return cast(SSAValue, value)
    raise FxImportError(f"{value} is not an integer")
