"""Symbolic sizes of types as values of a `ShapeEnv`, and fake tensors of given types."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import sympy  # pyright: ignore[reportMissingTypeStubs]  # SymPy ships none
import torch
from torch import SymInt, Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._sympy.functions import CeilDiv, FloorDiv, Max, Min, Mod, PythonMod
from xdsl.dialects.builtin import IntegerAttr, NoneAttr, TensorType
from xdsl.ir import Attribute

from vllm_ir.dialects.vllm_ir.expressions import UNKNOWN, parsed, shortened
from vllm_ir.dialects.vllm_ir.types import (
    BufferType,
    Dimensions,
    device_of,
    dimensions,
    offset_of,
    sizes_of,
    strides_of,
)
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.types import known_dtype

_FUNCTIONS = {function.__name__: function for function in (CeilDiv, FloorDiv, Max, Min, Mod, PythonMod)}
Size: TypeAlias = int | SymInt


class Symbols:
    """Values of the symbolic sizes in types, in the `ShapeEnv` of a fake mode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        if mode.shape_env is None:
            mode.shape_env = ShapeEnv()
            mode.static_shapes = False
        self.env: ShapeEnv = mode.shape_env
        known = [*self.env.var_to_range, *self.env.backed_var_to_val]
        self._symbols: dict[str, sympy.Symbol] = {str(symbol): symbol for symbol in known}

    def size(self, value: int | str) -> Size:
        """A size: an integer, or the value of an expression over symbols, which are made where they are new."""
        if isinstance(value, int):
            return value
        if value == UNKNOWN:
            with self.env.ignore_fresh_unbacked_symbols():  # it is no result of an operator, which would bind it
                return self.env.create_unbacked_symint()
        for name in names_in(value) - self._symbols.keys():
            self._symbols[name] = self._create(name)
        expression = evaluate(value, self._symbols)
        return self.env.create_symintnode(expression, hint=None)

    def renamed(self) -> dict[str, str]:
        """Names that this made symbols for, by the name that the symbol has in the `ShapeEnv`."""
        return {str(symbol): name for name, symbol in self._symbols.items() if str(symbol) != name}

    def original(self, kind: BufferType) -> BufferType:
        """A window of a traced example with the names that its symbols have in the module."""
        renamed = self.renamed()
        if not renamed:
            return kind

        def rename(value: int | str) -> int | str:
            if isinstance(value, int):
                return value
            return re.sub(r"[A-Za-z_]\w*", lambda match: renamed.get(match[0], match[0]), value)

        strides = NoneAttr() if isinstance(kind.strides, NoneAttr) else _renamed(kind.strides, rename)
        sizes = NoneAttr() if isinstance(kind.sizes, NoneAttr) else _renamed(kind.sizes, rename)
        offset = NoneAttr() if isinstance(kind.offset, NoneAttr) else dimensions([rename(kind.offset.data)]).data[0]
        return BufferType(kind.shape, kind.element_type, sizes, strides, offset, kind.device)

    def _create(self, name: str) -> sympy.Symbol:
        from torch._dynamo.source import ConstantSource  # loads Dynamo, which static programs do without

        # Examples are distinct and not small, so that nothing is specialised by coincidence.
        example = 6 + 2 * len(self._symbols)
        created = self.env.create_symbol(example, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC)
        if not isinstance(created, sympy.Symbol):
            raise FxImportError(f"symbol {name!r} cannot be made dynamic")
        return created


def evaluate(expression: str, symbols: Mapping[str, sympy.Expr]) -> sympy.Expr:
    """The expression that SymPy printed; its names are `symbols` and torch's integer functions.

    Raises:
        VerifyException: the text is not an expression.
        FxImportError: it has another function or operator, or no value, as `1 // 0`.
    """
    try:
        value = _value(parsed(expression), symbols)
    except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, FxImportError):
            raise
        raise FxImportError(f"size {shortened(expression)!r} has no value: {error_summary(error)}") from error
    if value.has(*_INFINITE):  # pyright: ignore[reportUnknownMemberType]  # SymPy declares no types
        raise FxImportError(f"size {shortened(expression)!r} has no value")
    return value


_INFINITE = (sympy.zoo, sympy.nan, sympy.oo, -sympy.oo)


def _quotient(left: sympy.Expr, right: sympy.Expr) -> object:
    return cast(object, left / right)


_OPERATORS = cast(
    "Mapping[type[ast.AST], Callable[..., object]]",
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: _quotient,
        ast.FloorDiv: FloorDiv,  # SymPy's own operator makes something else
        ast.Mod: operator.mod,
        ast.Pow: sympy.Pow,
        ast.USub: operator.neg,
        ast.UAdd: operator.pos,
    },
)


def _value(tree: ast.expr, symbols: Mapping[str, sympy.Expr]) -> sympy.Expr:
    function: Callable[..., object] | None
    match tree:
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return cast(sympy.Expr, sympy.sympify(number))
        case ast.Name(name) if name in symbols:
            return symbols[name]
        case ast.BinOp(left, operation, right):
            function, operands = _OPERATORS.get(type(operation)), [left, right]
        case ast.UnaryOp(operation, operand):
            function, operands = _OPERATORS.get(type(operation)), [operand]
        case ast.Call(ast.Name(name), operands):
            function = _FUNCTIONS.get(name)
        case _:
            function, operands = None, []
    if function is None:
        raise FxImportError(
            f"size {shortened(ast.unparse(tree))!r} is not made of sums, products, quotients and powers"
        )
    values = [_value(operand, symbols) for operand in operands]
    if function is sympy.Pow and values[0].is_number and abs(values[0]) > 2**16:
        raise FxImportError(f"size {shortened(ast.unparse(tree))!r} is too large")
    return cast(sympy.Expr, function(*values))


def sample(expression: str) -> int:
    """A value of a symbolic size, the same for equal expressions: each symbol gets a number of its own."""
    if expression == UNKNOWN:
        return 6
    values = {name: sympy.Integer(6 + 2 * (sum(map(ord, name)) % 50)) for name in names_in(expression)}
    return max(int(evaluate(expression, values)), 0)


def example_tensor(
    kind: TensorType[Attribute] | BufferType,
    shared: Attribute | None,
    symbols: Symbols | None,
    storages: dict[int, Tensor],
) -> Tensor:
    """A tensor of a tensor or buffer type, under the current fake mode.

    Windows with the same number `shared` are in one storage, kept in `storages`. `symbols` gives the values of dynamic
    sizes; None if there are none.
    """

    def known(values: Sequence[int | str]) -> list[Size]:
        return [symbols.size(value) if symbols is not None else int(value) for value in values]

    dtype = known_dtype(kind.element_type)
    sizes, strides = known(sizes_of(kind)), strides_of(kind)
    [offset] = known([offset_of(kind)]) if isinstance(kind, BufferType) else [0]
    if strides is None and isinstance(offset, int) and offset == 0 and not isinstance(shared, IntegerAttr):
        return torch.empty(sizes, dtype=dtype, device=device_of(kind))
    steps = _row_major(sizes) if strides is None else known(strides)
    if isinstance(shared, IntegerAttr):
        number = shared.value.data
        if number not in storages:
            storages[number] = torch.empty(1 << 48, dtype=torch.uint8, device=device_of(kind))
        return storages[number].view(dtype).as_strided(sizes, steps, offset)
    if isinstance(offset, int) and offset == 0:
        return torch.empty_strided(sizes, steps, dtype=dtype, device=device_of(kind))
    length: Size = offset + 1
    for size, step in zip(sizes, steps, strict=True):
        length = length + size * step
    return torch.empty(length, dtype=dtype, device=device_of(kind)).as_strided(sizes, steps, offset)


def _row_major(sizes: Sequence[Size]) -> list[Size]:
    """Contiguous strides; symbolic sizes are not 0."""
    steps: list[Size] = []
    step: Size = 1
    for size in reversed(sizes):
        steps.append(step)
        step = step * size
    return steps[::-1]


def _renamed(field: Dimensions, rename: Callable[[int | str], int | str]) -> Dimensions:
    return dimensions([rename(item.data) for item in field.data])


def contiguous_expressions(sizes: Sequence[int | str]) -> tuple[int | str, ...]:
    """Row-major strides of sizes that may be symbolic, as texts where they are; symbolic sizes are not 0."""
    steps: list[int | str] = []
    step: sympy.Expr = sympy.Integer(1)
    for size in reversed(sizes):
        steps.append(int(step) if step.is_Integer else str(step))
        factor = sympy.Integer(max(size, 1)) if isinstance(size, int) else evaluate(size, positive_symbols(size))
        step = cast(sympy.Expr, step * factor)
    return tuple(reversed(steps))


def names_in(expression: str) -> set[str]:
    """Symbols in the text of an expression."""
    return {node.id for node in ast.walk(parsed(expression)) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


def positive_symbols(expression: str) -> dict[str, sympy.Expr]:
    """The symbols in the text of an expression, as SymPy's: sizes that are not 0."""
    return {name: sympy.Symbol(name, integer=True, positive=True) for name in names_in(expression)}
