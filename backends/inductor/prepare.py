"""What Inductor expects to find in a graph that `make_fx` has not traced for it."""

from functools import cache
from typing import cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.backends.inductor.decompose import Decompositions, adopt_attribute, decompose_nodes
from vllm_ir.backends.inductor.rewordings import compute_scalar, hide_scatter, select_by_mask
from vllm_ir.backends.inductor.torch_internals import depends_on_strides, rounds_between_operators
from vllm_ir.frontends.fx.attributes import fetch_attribute
from vllm_ir.frontends.fx.opaque import opaque_functional
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload, map_nodes, schema_of

aten = torch.ops.aten

_LOW_PRECISION = (torch.bfloat16, torch.float16)
_CASTS = (torch.ops.prims.convert_element_type.default, aten._to_copy.default)


def prepare_for_inductor(gm: fx.GraphModule, decompositions: Decompositions, fake_mode: FakeTensorMode) -> None:
    """Complete a functional ATen graph with `meta["val"]` on its nodes, in place, as tracing for Inductor would have.

    Operators of the decomposition table are decomposed: Inductor refuses to fall back to them. Defaults are left out,
    as in traced calls. Operators that depend on strides record those of their operands; without the record Inductor
    gives them any layout it likes. Under `emulate_precision_casts` operators on bfloat16 and float16 are marked: the
    mark, not the setting, makes fused kernels round between them as eager does. Operators on element types that have
    no common type with others (float8, uint16, …) become opaque: Inductor cannot generate code for all of them.
    What else it gets wrong is put in other words, see `rewordings.py`.
    """
    decompose_nodes(gm, decompositions, fake_mode)
    for node in list(gm.graph.nodes):
        if node.op == "get_attr" and _is_only_stored(node):
            _store_bits(gm, node, fake_mode)
        elif (node.op == "get_attr" and compute_scalar(gm, node, fake_mode)) or (
            node.target is aten.index_put.default and select_by_mask(gm, node, fake_mode)
        ):
            continue
        hide_scatter(node)
        stored = any(map(_is_only_stored, (node, *node.all_input_nodes)))
        if stored and is_overload(node.target) and not _only_reinterprets(node.target):
            node.target = opaque_functional(node.target)
        prepare_node(node)
    gm.graph.lint()
    gm.recompile()


def prepare_node(node: fx.Node) -> None:
    """Complete one node; see `prepare_for_inductor`."""
    if node.op != "call_function":
        return
    if is_overload(node.target):
        _drop_defaults(node, schema_of(node.target))
        if rounds_between_operators() and any(map(_is_low_precision, (node, *node.all_input_nodes))):
            node.meta["low_precision_pointwise_barrier"] = True
    if "eager_input_vals" not in node.meta and depends_on_strides(node):
        node.meta["eager_input_vals"] = map_nodes((node.args, node.kwargs), _value_of)


def _drop_defaults(node: fx.Node, schema: torch.FunctionSchema) -> None:
    """Leave out arguments at the end, and by name, that have their default value, as calls recorded by tracing do.

    Inductor's patterns are written without them, and its lowerings do not take all of them.
    """
    args = list(node.args)
    while args and (argument := schema.arguments[len(args) - 1]).has_default_value():
        if not _same_constant(args[-1], argument.default_value):
            break
        args.pop()
    defaults: dict[str, object] = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    node.args = tuple(args)
    node.kwargs = {k: v for k, v in node.kwargs.items() if k not in defaults or not _same_constant(v, defaults[k])}


def _same_constant(value: object, default: object) -> bool:
    # 0 == False and 1 == 1.0, but an operator that takes any number tells them apart.
    return type(value) is type(default) and not isinstance(value, fx.Node) and value == default


def _value_of(node: fx.Node) -> object:
    return node.meta.get("val")


def _is_low_precision(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _LOW_PRECISION


def _is_only_stored(node: fx.Node) -> bool:
    """Whether a value has an element type that eager stores and casts but does not mix with others."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not _has_promotion(value.dtype)


@cache
def _has_promotion(dtype: torch.dtype) -> bool:
    try:
        torch.promote_types(torch.bool, dtype)
    except RuntimeError:
        return False
    return True


def _store_bits(gm: fx.GraphModule, node: fx.Node, fake_mode: FakeTensorMode) -> None:
    """Keep a constant as integers of its width, and look at them as its element type."""
    value = fetch_attribute(gm, cast(str, node.target))
    if not isinstance(value, torch.Tensor):
        return
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
    with gm.graph.inserting_after(node):
        lifted = gm.graph.call_function(aten.lift_fresh_copy.default, (node,))
    with gm.graph.inserting_after(lifted):
        typed = gm.graph.call_function(aten.view.dtype, (lifted, value.dtype))
    node.replace_all_uses_with(typed, delete_user_cb=lambda user: user is not lifted)
    adopt_attribute(gm, node, value.view(bits))
    with fake_mode:
        node.meta["val"] = node.meta["val"].view(bits)
        lifted.meta["val"] = node.meta["val"].clone()
        typed.meta["val"] = lifted.meta["val"].view(value.dtype)


def _only_reinterprets(target: Overload) -> bool:
    """Whether an operator is a view or a cast, which Inductor can do for every element type."""
    return op_info(target).is_view or target in _CASTS
