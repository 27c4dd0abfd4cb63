"""`specialize`: symbolic sizes become numbers.

For devices of static shapes. `specialize{sizes="s0=16","s1=128"}` puts these numbers in the place of the symbols, in
types and in what is computed of them: sizes that are known then are no operands any more. Symbols that are not named
stay symbolic. Arguments that are the value of a symbol stay too, so that callers pass what they did before.

Whether the program may run with these sizes is for the caller to know; a size that comes out negative is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

import sympy  # pyright: ignore[reportMissingTypeStubs]  # SymPy ships none
from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.rewrites import LimitedPass
from vllm_ir.dialects.torch.arguments import map_operands
from vllm_ir.dialects.torch.call import CallOp, index_array
from vllm_ir.dialects.vllm_ir.function import ORIGINAL_OUTPUT_COUNT, SYMBOL, WINDOW, FuncOp, ReturnOp
from vllm_ir.dialects.vllm_ir.memory import ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, offset_of, sizes_of, strides_of
from vllm_ir.frontends.fx.arithmetic import INTEGER_FUNCTIONS, compute
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.symbols import evaluate, names_in, positive_symbols
from vllm_ir.frontends.fx.types import is_shaped, window_type
from vllm_ir.frontends.fx.values import decode, integer, operand_reference

_INDICES = ("reads", "writes", "updates", "returns")
"""Properties of calls that number operands."""


@dataclass(frozen=True)
class SpecializePass(LimitedPass):
    """Put numbers in the place of symbolic sizes.

    `sizes` has one text `symbol=number` for each symbol. With `limit`, that many symbols become numbers.
    """

    name = "specialize"

    sizes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Specialise all functions of a module."""
        numbers = dict(map(_parsed, self.sizes))
        functions = [function for function in op.body.block.ops if isinstance(function, FuncOp)]
        known = {name for function in functions for name in _symbols(function)}
        for name in numbers:
            if name not in known:
                raise ValueError(f"there is no symbol {name!r}; symbols are {', '.join(sorted(known)) or 'none'}")
        rewrites = self.start()
        numbers = {name: n for name, n in numbers.items() if rewrites.take(functions[0], f"gets {name} = {n}")}
        if rewrites.is_limited and not numbers:
            return
        for function in functions:
            if ORIGINAL_OUTPUT_COUNT in function.attributes:
                fail(function, "has alias facts with symbolic sizes; run specialize before alias-outputs")
            _Specializer(function, numbers).run()


def _parsed(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not name.isidentifier() or not number.isdecimal():
        raise ValueError(f"option sizes has {text!r}, it takes symbol=number")
    return name, int(number)


def _symbols(function: FuncOp) -> set[str]:
    kinds = [*function.block.arg_types, *(result.type for op in function.block.ops for result in op.results)]
    texts = [text for kind in kinds if is_shaped(kind) for text in _expressions(kind)]
    for index in range(len(function.block.args)):
        if isinstance(symbol := function.argument_attributes(index).get(SYMBOL), StringAttr):
            texts.append(symbol.data)
    return {name for text in texts if text != "?" for name in names_in(text)}


def _expressions(kind: Attribute) -> list[str]:
    numbers = [*sizes_of(kind), *(strides_of(kind) or ()), offset_of(kind) if isinstance(kind, BufferType) else 0]
    return [number for number in numbers if isinstance(number, str)]


class _Specializer:
    def __init__(self, function: FuncOp, numbers: Mapping[str, int]) -> None:
        self.function = function
        self.symbols = {name: sympy.Integer(number) for name, number in numbers.items()}
        self.known: dict[SSAValue, int] = {}
        self.types: dict[Attribute, Attribute] = {}

    def run(self) -> None:
        self._arguments()
        for op in list(self.function.block.ops):
            self._visit(op)
        for op in reversed([value.owner for value in self.known]):
            if isinstance(op, Operation) and op.results[0].first_use is None:
                Rewriter.erase_op(op)
        self.function.update_type()

    def _arguments(self) -> None:
        attributes = [self.function.argument_attributes(index) for index in range(len(self.function.block.args))]
        for argument, given in zip(list(self.function.block.args), attributes, strict=True):
            if isinstance(symbol := given.get(SYMBOL), StringAttr):
                value = self._number(self.function, symbol.data)
                if isinstance(value, int):
                    self.known[argument] = value
            if (window := given.get(WINDOW)) is not None:
                given[WINDOW] = self._type(self.function, window)
            if (kind := self._type(self.function, argument.type)) != argument.type:
                Rewriter.replace_value_with_new_type(argument, kind)
        self.function.set_argument_attributes(attributes)

    # Types

    def _number(self, op: Operation, value: int | str) -> int | str:
        """A size with the numbers in place; a text while symbols are left in it."""
        if isinstance(value, int) or value == "?":
            return value
        try:
            result = evaluate(value, {**positive_symbols(value), **self.symbols})
        except FxImportError as error:
            fail(op, error.reason)
        if not result.is_Integer:
            return str(result)
        if (number := int(cast(sympy.Integer, result))) < 0:
            fail(op, f"the size {value} is {number} with the given numbers")
        return number

    def _type(self, op: Operation, kind: Attribute) -> Attribute:
        if not is_shaped(kind):
            return kind
        if (found := self.types.get(kind)) is None:
            sizes, strides = tuple(self._number(op, size) for size in sizes_of(kind)), strides_of(kind)
            steps = None if strides is None else tuple(self._number(op, step) for step in strides)
            offset = self._number(op, offset_of(kind)) if isinstance(kind, BufferType) else 0
            found = self.types[kind] = window_type(kind, sizes, steps, offset)
        return found

    # Operations

    def _visit(self, op: Operation) -> None:
        if (value := self._computed(op)) is not None:
            self.known[op.results[0]] = value
            return
        kinds = [self._type(op, result.type) for result in op.results]
        known = {index: self.known[operand] for index, operand in enumerate(op.operands) if operand in self.known}
        properties, operands = dict(op.properties), list(op.operands)
        if known and isinstance(op, CallOp | ViewOp):
            properties, operands = _without_operands(op, known)
        elif known:
            for index, number in known.items():
                operands[index] = self._constant(op, number)
        if kinds == [result.type for result in op.results] and not known:
            return
        new = type(op).create(
            operands=operands, result_types=kinds, properties=properties, attributes=op.attributes, location=op.location
        )
        Rewriter.replace_op(op, new)

    def _constant(self, op: Operation, number: int) -> SSAValue:
        constant = arith.ConstantOp.create(result_types=[i64], properties={"value": IntegerAttr(number, i64)})
        constant.location = op.location
        self.function.block.insert_op_before(constant, self._before_writes(op))
        return constant.results[0]

    def _before_writes(self, op: Operation) -> Operation:
        """Where to put what `op` needs: a functional function computes nothing behind its first final write."""
        if self.function.functional is None or not isinstance(op, ReturnOp):
            return op
        return next((other for other in self.function.block.ops if isinstance(other, WriteOp)), op)

    def _computed(self, op: Operation) -> int | None:
        """The integer that an operation gives, if it is known."""
        if len(op.results) != 1 or op.results[0].type != i64:
            return None
        if isinstance(op, arith.ConstantOp):
            return op.value.value.data if isinstance(op.value, IntegerAttr) else None
        if isinstance(op, CallOp):
            return self._called(op)
        function = INTEGER_FUNCTIONS.get(type(op))
        if function is None or not all(operand in self.known for operand in op.operands):
            return None
        return cast(int, _value(op, function, [self.known[operand] for operand in op.operands]))

    def _called(self, op: CallOp) -> int | None:
        """What a function of sizes gives, or a question for a size of a tensor whose type tells it."""
        operands = [self.known.get(operand, operand) for operand in op.operands]
        if op.target.startswith("python."):
            if not all(isinstance(operand, int) for operand in operands):
                return None
            function = resolve(op.target)
            if not callable(function):
                return None
            value = _value(op, function, [decode(tree, operands, str) for tree in op.args.data])
            return int(value) if isinstance(value, int) else None
        if not op.target.startswith("aten.sym_") or not operands or not is_shaped(op.operands[0].type):
            return None
        kind = self._type(op, op.operands[0].type)
        rest = [decode(tree, operands, str) for tree in op.args.data[1:]]
        return _answer(op.target, kind, rest)


def _value(op: Operation, function: Callable[..., object], operands: Sequence[object]) -> object:
    try:
        return compute(function, operands)
    except FxImportError as error:
        fail(op, error.reason)


def _answer(target: str, kind: Attribute, rest: Sequence[object]) -> int | None:
    """What torch's `sym_size` and its like give for a tensor of this type; None if that is not known."""
    sizes, strides = sizes_of(kind), strides_of(kind)
    dimension = rest[0] if rest and isinstance(rest[0], int) and -len(sizes) <= rest[0] < len(sizes) else None
    found: object = None
    if target == "aten.sym_size.int" and dimension is not None:
        found = sizes[dimension]
    elif target == "aten.sym_stride.int" and dimension is not None and strides is not None:
        found = strides[dimension]
    elif target == "aten.sym_numel.default" and all(isinstance(size, int) for size in sizes):
        found = prod(cast("tuple[int, ...]", sizes))
    elif target == "aten.sym_storage_offset.default" and isinstance(kind, BufferType):
        found = offset_of(kind)
    return found if isinstance(found, int) else None


def _without_operands(op: CallOp | ViewOp, known: Mapping[int, int]) -> tuple[dict[str, Attribute], list[SSAValue]]:
    """Properties and operands of a call in which known integers are static arguments."""
    kept = [index for index in range(len(op.operands)) if index not in known]
    numbers = {old: new for new, old in enumerate(kept)}
    trees: dict[int, Attribute] = {old: operand_reference(new) for old, new in numbers.items()}
    trees.update({index: integer(number) for index, number in known.items()})
    properties = dict(op.properties)
    properties["args"] = ArrayAttr([map_operands(tree, trees) for tree in op.args.data])
    if op.kwargs is not None:
        properties["kwargs"] = DictionaryAttr({k: map_operands(tree, trees) for k, tree in op.kwargs.data.items()})
    if isinstance(op, CallOp):
        for name, given in zip(_INDICES, (op.reads, op.writes, op.updates, op.returns), strict=True):
            if given is not None:
                indices = [int(index) for index in given.get_values()]
                properties[name] = index_array(numbers.get(index, index) for index in indices)
    return properties, [op.operands[index] for index in kept]
