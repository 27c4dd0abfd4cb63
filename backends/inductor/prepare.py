"""What Inductor expects to find in a graph that `make_fx` has not traced for it."""

import operator
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._inductor import config
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import _should_save_eager_input_vals, make_fx

Decompositions = Mapping[OpOverload, Callable[..., object]]

_LOW_PRECISION = (torch.bfloat16, torch.float16)


def prepare_for_inductor(gm: fx.GraphModule, decompositions: Decompositions, fake_mode: FakeTensorMode) -> None:
    """Complete a functional ATen graph with `meta["val"]` on its nodes, in place, as tracing for Inductor would have.

    Operators of the decomposition table are decomposed: Inductor refuses to fall back to them. Defaults are left out, as
    in traced calls. Operators that depend on strides record those of their operands; without the record Inductor gives
    them any layout it likes. Under `emulate_precision_casts` operators on bfloat16 and float16 are marked: the mark, not
    the setting, makes fused kernels round between them as eager does.
    """
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in decompositions:
            _decompose(gm, node, decompositions, fake_mode)
    rounds = config.emulate_precision_casts
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if isinstance(node.target, OpOverload):
            _drop_defaults(node, node.target._schema)
        if "eager_input_vals" not in node.meta and _should_save_eager_input_vals(node.target, (node.args, node.kwargs)):
            node.meta["eager_input_vals"] = fx.node.map_aggregate((node.args, node.kwargs), _fake_value)
        if (
            rounds
            and isinstance(node.target, OpOverload)
            and any(map(_is_low_precision, (node, *node.all_input_nodes)))
        ):
            node.meta["low_precision_pointwise_barrier"] = True
    gm.graph.lint()
    gm.recompile()


def _drop_defaults(node: fx.Node, schema: torch.FunctionSchema) -> None:
    """Leave out arguments at the end, and by name, that have their default value, as calls recorded by tracing do.

    Inductor's patterns are written without them, and its lowerings do not take all of them.
    """
    args = list(node.args)
    while args and (argument := schema.arguments[len(args) - 1]).has_default_value():
        if not _same_static(args[-1], argument.default_value):
            break
        args.pop()
    defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    node.args = tuple(args)
    node.kwargs = {k: v for k, v in node.kwargs.items() if k not in defaults or not _same_static(v, defaults[k])}


def _same_static(value: object, default: object) -> bool:
    # 0 == False and 1 == 1.0, which are different arguments of an operator that takes any number.
    return type(value) is type(default) and not isinstance(value, fx.Node) and value == default


def _fake_value(argument: object) -> object:
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def _is_low_precision(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _LOW_PRECISION


def _decompose(gm: fx.GraphModule, node: fx.Node, decompositions: Decompositions, fake_mode: FakeTensorMode) -> None:
    """Replace a node by what its decomposition does, unless that is the node itself."""
    operands = node.all_input_nodes
    target = cast(OpOverload, node.target)

    def call(*values: object) -> object:
        value_of = dict(zip(operands, values, strict=True))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), value_of.__getitem__)
        return target(*args, **kwargs)

    with fake_mode, enable_python_dispatcher(), torch.no_grad():
        values = [operand.meta["val"] for operand in operands]
        traced = make_fx(call, decomposition_table=dict(decompositions), tracing_mode="real")(*values)
    if any(inner.target is target for inner in traced.graph.nodes):
        return
    results = _inline(gm, node, traced, operands)
    if isinstance(results, fx.Node):
        results.meta.update({key: value for key, value in node.meta.items() if key not in results.meta})
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise RuntimeError(f"{target}: expected its results to be taken apart, but {user.target} uses them all")
            user.replace_all_uses_with(cast(fx.Node, cast("list[object]", results)[cast(int, user.args[1])]))
            gm.graph.erase_node(user)
    gm.graph.erase_node(node)


def _inline(gm: fx.GraphModule, node: fx.Node, traced: fx.GraphModule, operands: list[fx.Node]) -> object:
    """Copy the nodes of `traced` in front of `node`; returns what they return."""
    remaining = iter(operands)
    new: dict[fx.Node, fx.Node] = {}
    with gm.graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "placeholder":
                new[inner] = next(remaining)
            elif inner.op == "output":
                return fx.node.map_arg(inner.args[0], new.__getitem__)
            else:
                new[inner] = gm.graph.node_copy(inner, new.__getitem__)
                if inner.op == "get_attr":
                    _adopt_attribute(gm, new[inner], getattr(traced, cast(str, inner.target)))
                if "stack_trace" in node.meta:
                    new[inner].meta["stack_trace"] = node.meta["stack_trace"]
    raise AssertionError("a graph ends in its output")


def _adopt_attribute(gm: fx.GraphModule, node: fx.Node, value: object) -> None:
    """Make `value` an attribute of `gm` under an unused name, and `node` a reference to it."""
    name = base = cast(str, node.target)
    number = 0
    while hasattr(gm, name):
        number += 1
        name = f"{base}_{number}"
    setattr(gm, name, value)
    node.target = name
