"""Strides of values in an exported graph: put right where a program can see them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, cast

import sympy  # pyright: ignore[reportMissingTypeStubs]  # SymPy ships none
import torch
from torch import Tensor, fx
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from xdsl.ir import Attribute

from vllm_ir.dialects.vllm_ir.types import contiguous_strides, sizes_of, strides_of
from vllm_ir.frontends.fx.symbols import Symbols, evaluate, names_in
from vllm_ir.frontends.fx.torch_internals import has_symbolic_metadata
from vllm_ir.frontends.fx.torch_objects import expression
from vllm_ir.frontends.fx.types import symbolic

aten = torch.ops.aten
Emit = Callable[..., fx.Node]
_expand = cast(Any, sympy.expand)  # pyright: ignore[reportUnknownMemberType]  # SymPy has no types


def tensor_of(node: fx.Node) -> Tensor:
    """What `node` gives."""
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        raise TypeError(f"{node} is not a tensor")
    return value


def has_strides(value: Tensor, kind: Attribute) -> bool:
    """Whether `value` is laid out as `kind` states; strides of dimensions of size 1, and of empty tensors, are free."""
    wanted = _settled_strides(value, kind)
    if wanted is None:
        return is_contiguous_or_false(value)
    if any(symbolic(size) == 0 for size in value.shape):
        return True
    return all(
        size == 1 or symbolic(stride) == step
        for size, stride, step in zip(sizes_of(kind), value.stride(), wanted, strict=True)
    )


def _settled_strides(value: Tensor, kind: Attribute) -> Sequence[int | str] | None:
    """The strides of `kind` in the terms of `value`: a symbol may have become a number since they were told."""
    wanted = strides_of(kind)
    if wanted is None or not isinstance(value, FakeTensor) or all(isinstance(step, int) for step in wanted):
        return wanted
    mode: FakeTensorMode = value.fake_mode
    if mode.shape_env is None or not mode.shape_env.replacements:
        return wanted
    symbols = Symbols(mode)
    return [symbolic(symbols.size(step)) for step in wanted]


def has_free_strides(kind: Attribute) -> bool:
    """Whether tensors of a type have strides that lead nowhere: of dimensions of size 1, or in empty tensors."""
    return any(size in (0, 1) for size in sizes_of(kind))


def with_all_strides(emit: Emit, node: fx.Node, kind: Attribute, *, trust_values: bool) -> fx.Node:
    """A view of `node`, laid out as `kind`, that has the strides of `kind` also where they lead nowhere.

    Without `trust_values` these strides may be others than those of the node's value. Dynamic types are left alone.
    """
    if not needs_all_strides(tensor_of(node), kind, trust_values=trust_values):
        return node
    return emit(aten.as_strided.default, (node, list(sizes_of(kind)), list(_static_strides(kind) or ())))


def needs_all_strides(value: Tensor, kind: Attribute, *, trust_values: bool) -> bool:
    """Whether `with_all_strides` has anything to do."""
    wanted = _static_strides(kind)
    if wanted is None or not has_free_strides(kind):
        return False
    if trust_values:
        return value.stride() != wanted
    row_major = contiguous_strides([size for size in sizes_of(kind) if isinstance(size, int)])
    return not value.stride() == wanted == row_major


def _static_strides(kind: Attribute) -> tuple[int, ...] | None:
    """Strides in elements; None for dynamic types."""
    strides = strides_of(kind) or ()
    steps = tuple(step for step in strides if isinstance(step, int))
    static = len(steps) == len(sizes_of(kind)) and all(isinstance(size, int) for size in sizes_of(kind))
    return steps if static else None


def with_strides(emit: Emit, node: fx.Node, kind: Attribute) -> fx.Node:
    """A node with the value of `node` and the strides of `kind`."""
    if has_strides(tensor_of(node), kind):
        return node
    value = tensor_of(node)
    wanted = _settled_strides(value, kind)
    if wanted is not None and 0 in [step for step, size in zip(wanted, sizes_of(kind), strict=True) if size != 1]:
        return _expanded(emit, node, wanted)
    contiguous = {"memory_format": torch.contiguous_format}
    if wanted is None:
        return emit(aten.clone.default, (node,), contiguous)
    order = _dense_order(sizes_of(kind), strides_of(kind) or ())
    if order is None:  # some symbols of the type have become numbers
        order = _dense_order([expression(size) for size in value.shape], wanted)
    if order is not None:
        if order == sorted(order):
            return emit(aten.clone.default, (node,), contiguous)
        inverse = [order.index(dimension) for dimension in range(len(order))]
        ordered = emit(aten.permute.default, (node, order))
        return emit(aten.permute.default, (emit(aten.clone.default, (ordered,), contiguous), inverse))
    steps = [step for step in wanted if isinstance(step, int)]
    sizes = [size for size in sizes_of(kind) if isinstance(size, int)]
    if len(steps) != len(wanted) or len(sizes) != len(wanted):
        return emit(aten.clone.default, (node,), contiguous)
    span = 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    memory = emit(aten.full.default, ([span], 0), {"dtype": value.dtype, "device": value.device, "pin_memory": False})
    filled = emit(aten.as_strided_scatter.default, (memory, node, sizes, steps, 0))
    return emit(aten.as_strided.default, (filled, sizes, steps, 0))


def _expanded(emit: Emit, node: fx.Node, wanted: Sequence[int | str]) -> fx.Node:
    """A node with the value of `node` whose elements along dimensions of stride 0 are one, as the strides say."""
    sizes = list(tensor_of(node).shape)
    base = node
    for dimension, step in enumerate(wanted):
        if step == 0 and sizes[dimension] != 1:
            base = emit(aten.slice.Tensor, (base, dimension, 0, 1, 1))
    base = emit(aten.clone.default, (base,), {"memory_format": torch.contiguous_format})
    if not has_symbolic_metadata(tensor_of(node)):
        return emit(aten.expand.default, (base, sizes))
    return emit(aten.expand_as.default, (base, node))


def _dense_order(sizes: Sequence[object], steps: Sequence[int | str]) -> list[int] | None:
    """Dimensions from the largest stride to the smallest, if the strides are those of memory without gaps.

    Sizes are integers or expressions, which are compared with strides as they are written: nothing is guarded on.
    PyTorch writes `Max(1, size)` in strides, for tensors without elements, whose strides are free.
    """
    remaining = [dimension for dimension, size in enumerate(sizes) if size != 1]
    order = [dimension for dimension, size in enumerate(sizes) if size == 1]
    inner: list[int] = []
    step: Any = sympy.Integer(1)  # SymPy has no types
    wanted = {dimension: _plain(steps[dimension]) for dimension in remaining}
    while remaining:
        found = next((dimension for dimension in reversed(remaining) if wanted[dimension] == _expand(step)), None)
        if found is None:
            return None
        remaining.remove(found)
        inner.append(found)
        step = step * _plain(sizes[found])
    return order + inner[::-1]


def _plain(number: object) -> Any:  # an expression of SymPy, which has no types
    """A size or stride as a sum of products over symbols of which nothing is known, without `Max(1, size)`."""
    text = ast.unparse(_WithoutMaximum().visit(ast.parse(str(number), mode="eval")))
    return _expand(evaluate(text, {name: sympy.Symbol(name) for name in names_in(text)}))


class _WithoutMaximum(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        node = cast(ast.Call, self.generic_visit(node))
        others = [
            argument for argument in node.args if not (isinstance(argument, ast.Constant) and argument.value == 1)
        ]
        if isinstance(node.func, ast.Name) and node.func.id == "Max" and len(node.args) == 2 and len(others) == 1:
            return others[0]
        return node
