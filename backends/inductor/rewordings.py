"""Operators that Inductor gets wrong, in words that it gets right.

Each was found by the fuzzer, and `test/backends/inductor/test_rewordings.py` shows that Inductor alone fails.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

from vllm_ir.backends.inductor.aliases import viewed_operand
from vllm_ir.backends.inductor.laziness import is_realized
from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.opaque import opaque_functional
from vllm_ir.frontends.fx.schemas import scattered_view, writes_parts
from vllm_ir.frontends.fx.torch_objects import Overload, call_node, is_overload, map_nodes

aten = torch.ops.aten


def compute_scalar(gm: fx.GraphModule, node: fx.Node, fake_mode: FakeTensorMode) -> bool:
    """Replace a constant without dimensions by an operator that makes it: Inductor takes views of that.

    Returns whether it is replaced; other constants stay.
    """
    value = fetch_attribute(gm, cast(str, node.target))
    if not isinstance(value, torch.Tensor) or value.dim() or type(node.meta["val"]) is not FakeTensor:
        return False
    with unset_fake_temporarily():
        number = value.item()
    with gm.graph.inserting_after(node):
        computed = call_node(gm.graph, aten.full.default, ([], number), {"dtype": value.dtype, "device": value.device})
    with fake_mode:
        computed.meta["val"] = aten.full.default([], number, dtype=value.dtype, device=value.device)
    node.replace_all_uses_with(computed)
    gm.graph.erase_node(node)
    return True


def select_by_mask(gm: fx.GraphModule, node: fx.Node, fake_mode: FakeTensorMode) -> bool:
    """Replace an assignment of one number to the elements that a mask tells by a selection.

    Inductor puts such assignments in place, and then runs them in front of a scatter to the same memory. Returns
    whether it is replaced; other scatters stay.
    """
    self, indices, value, *accumulate = cast("tuple[fx.Node, Sequence[fx.Node | None], fx.Node, bool]", node.args)
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.meta["val"].dtype != torch.bool or value.meta["val"].numel() != 1:
        return False

    def emit(target: Overload, *args: object) -> fx.Node:
        new = call_node(gm.graph, target, args, {})
        with fake_mode:
            new.meta["val"] = cast("Callable[..., object]", target)(*map_nodes(args, _value_of))
        if "stack_trace" in node.meta:
            new.meta["stack_trace"] = node.meta["stack_trace"]
        return new

    with gm.graph.inserting_before(node):
        for _ in range(self.meta["val"].dim() - mask.meta["val"].dim()):
            mask = emit(aten.unsqueeze.default, mask, -1)
        number = emit(aten.reshape.default, value, [])
        if any(accumulate):
            number = emit(aten.add.Tensor, self, number)
        selected = emit(aten.where.self, mask, number, self)
    selected.meta["val"] = node.meta["val"]  # with its strides
    node.replace_all_uses_with(selected)
    gm.graph.erase_node(node)
    return True


def hide_scatter(node: fx.Node) -> None:
    """Hide a scatter that Inductor would put in place with other results, or not be able to.

    That is one into memory that its operands look at: Inductor drops copies before, and computes indices where the
    scatter happens, values in front of it. And it is one into memory that is reinterpreted as another element type.
    """
    target = node.target
    if not is_overload(target) or (scattered_view(target) is None and not writes_parts(target)):
        return
    if _looks_at_itself(node) or _is_reinterpreted(cast(fx.Node, node.args[0])):
        node.target = opaque_functional(target)


def _looks_at_itself(node: fx.Node) -> bool:
    if node.target is not aten.index_put.default:
        return False
    self, indices, value, *_ = cast("tuple[fx.Node, Sequence[fx.Node | None], fx.Node, bool]", node.args)
    memory = _memory_of(self)
    return _memory_of(value) is memory or any(index is not None and _looks_at(index, memory) for index in indices)


def _is_reinterpreted(memory: fx.Node) -> bool:
    """Whether a value is in memory of another element type."""
    while (base := viewed_operand(memory)) is not None:
        if base.meta["val"].dtype != memory.meta["val"].dtype:
            return True
        memory = base
    return False


def _looks_at(node: fx.Node, memory: fx.Node) -> bool:
    """Whether a value is computed from some memory where it is used, or is a part of it."""
    pending, seen = [node], set[fx.Node]()
    while pending:
        value = pending.pop()
        if value is memory:
            return True
        lazy = value.target is operator.getitem or (is_overload(value.target) and not is_realized(value.target))
        if value not in seen and lazy:
            seen.add(value)
            pending += value.all_input_nodes
    return False


def _memory_of(node: fx.Node) -> fx.Node:
    """The node whose memory a value is in if it is not copied."""
    while True:
        copied = cast(fx.Node, node.args[0]) if node.target is aten.clone.default else None
        if (base := copied or viewed_operand(node)) is None:
            return node
        node = base


def loses_bits_of_constants(graph: fx.Graph) -> bool:
    """Whether there are constants that Inductor would fold to another number than they are.

    It writes numbers down: of what is no number it keeps nothing but that, and of complex numbers not all signs.
    """
    constants: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or not constants.issuperset(node.all_input_nodes):
            continue
        constants.add(node)
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if value.dtype.is_complex or (node.target is aten.view.dtype and value.dtype.is_floating_point):
            return True
    return False


def _value_of(node: fx.Node) -> object:
    return node.meta.get("val")
