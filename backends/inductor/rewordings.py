"""Operators that Inductor gets wrong, in words that it gets right.

Each was found by the fuzzer, and `test/backends/inductor/test_rewordings.py` shows that Inductor alone fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.torch_objects import Overload, call_node, map_nodes

aten = torch.ops.aten


def compute_scalar(gm: fx.GraphModule, node: fx.Node, fake_mode: FakeTensorMode) -> None:
    """Replace a constant without dimensions by an operator that makes it: Inductor takes views of that."""
    value = fetch_attribute(gm, cast(str, node.target))
    if not isinstance(value, torch.Tensor) or value.dim() or type(node.meta["val"]) is not FakeTensor:
        return
    with unset_fake_temporarily():
        number = value.item()
    with gm.graph.inserting_after(node):
        computed = call_node(gm.graph, aten.full.default, ([], number), {"dtype": value.dtype, "device": value.device})
    with fake_mode:
        computed.meta["val"] = aten.full.default([], number, dtype=value.dtype, device=value.device)
    node.replace_all_uses_with(computed)
    gm.graph.erase_node(node)


def select_by_mask(gm: fx.GraphModule, node: fx.Node, fake_mode: FakeTensorMode) -> None:
    """Replace an assignment of one number to the elements that a mask tells by a selection.

    Inductor puts such assignments in place, and then runs them in front of a scatter to the same memory.
    """
    self, indices, value, *accumulate = cast("tuple[fx.Node, Sequence[fx.Node | None], fx.Node, bool]", node.args)
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.meta["val"].dtype != torch.bool or value.meta["val"].numel() != 1:
        return

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


def makes_numbers_of_bits(graph: fx.Graph) -> bool:
    """Whether constants are reinterpreted as floating-point numbers.

    Inductor folds them to a number, and of numbers that are no numbers it keeps nothing but that.
    """
    constants: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or not constants.issuperset(node.all_input_nodes):
            continue
        constants.add(node)
        value = node.meta.get("val")
        is_number = isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)
        if node.target is aten.view.dtype and is_number:
            return True
    return False


def _value_of(node: fx.Node) -> object:
    return node.meta.get("val")
